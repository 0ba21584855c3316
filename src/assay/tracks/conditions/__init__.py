"""Claims about learning and answering under hard conditions: noise, few bits, attacks, strange inputs."""
