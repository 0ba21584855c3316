"""The four stories of the open doors, from a wheel in an empty environment: at most 15 lines each, no error on the way.

They install torch and its friends, so they are slow tests; each script is what a person would type.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stories")]
MOST_LINES = 15

OWN_RULE = '''
import torch, assay
class Mine:
    def backward(self, model, x, y):
        loss = torch.nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)
        loss.backward()
        return loss.detach()
def net(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))
if __name__ == "__main__":
    run = assay.bench("digits", rules={"mine": Mine}, model=net, seeds=5, margin=3, settings={"epochs": 8})
    print(run.findings[0].verdict, run.findings[0].reason)
    assay.save_report(run, "table.tex")
'''
STUDENT = '''
import assay
wine = assay.tasks.from_csv("wine.csv", target="kind")
model = assay.models.EnergyMLP([wine.inputs, 16, wine.outputs], gamma=0.1, seed=0)
result = assay.train(model, wine, "eqprop", epochs=20, seed=0)
print("accuracy", result.test_accuracy, wine.floors().as_record())
amount = assay.tasks.from_csv("wine.csv", target="alcohol", ignore=["kind"])
run = assay.bench(amount, rules=["dfa"], seeds=3, margin="10%", settings={"epochs": 5})
print("amount", run.findings[0].verdict, run.findings[0].key_finding)
'''
REVIEWER = "assay reproduce fa-protocol recorded --out page"
DEVICE = '''
import assay
task = assay.tasks.digits(seed=0)
model = assay.models.EnergyMLP([64, 16, 10], gamma=0.1, seed=0)
print("trained", assay.train(model, task, "eqprop", epochs=1, seed=0, device="auto").test_accuracy)
run = assay.bench("digits", rules=["dfa"], seeds=3, settings={"epochs": 1}, device="auto")
print("device", run.config["device"])
x, y = task.test.x[:32], task.test.y[:32]
print(assay.audit_gradient(model, x, y, rule="eqprop", device="auto").verdict)
'''


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it depends on, and nothing of the checkout."""
    folder = tmp_path_factory.mktemp("stories")
    tool = [sys.executable, "-m", "pip"]
    run(folder, *tool, "wheel", "-q", "--no-deps", "--wheel-dir", str(folder / "wheel"), str(ROOT))
    run(folder, sys.executable, "-m", "venv", str(folder / "env"))
    (wheel,) = (folder / "wheel").glob("*.whl")
    python = str(folder / "env" / "bin" / "python")
    run(folder, python, "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), str(wheel))
    return folder


def run(folder: Path, *words: str, code: int = 0) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ASSAY", "VIRTUAL"))}
    done = subprocess.run(words, cwd=folder, env={**kept, "HOME": str(folder)}, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == code, f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr and "Error" not in done.stderr, done.stderr
    return done.stdout


def told(empty: Path, name: str, script: str) -> str:
    assert len(script.strip().splitlines()) <= MOST_LINES
    (empty / name).write_text(script.lstrip(), encoding="utf-8")
    return run(empty, str(empty / "env" / "bin" / "python"), name)


def test_a_rule_of_ones_own_becomes_a_row_of_a_paper(empty: Path) -> None:
    out = told(empty, "my_lab.py", OWN_RULE)
    assert out.split()[0] in ("PASS", "FAIL", "INCONCLUSIVE") and "control" not in out
    (row,) = [line for line in (empty / "table.tex").read_text().splitlines() if "mine" in line]
    cells = [cell.strip() for cell in row.rstrip("\\ ").split("&")]
    assert "---" not in cells and cells[-1] == out.split()[0], row


def test_a_student_brings_a_csv_of_classes_and_of_amounts(empty: Path) -> None:
    from sklearn.datasets import load_wine

    data = load_wine()
    lines = [",".join([f"a{i}" for i in range(1, 13)] + ["alcohol", "kind"])]
    lines += [",".join([*map(str, row[1:]), str(row[0]), str(data.target_names[kind])])
              for row, kind in zip(data.data, data.target, strict=True)]
    (empty / "wine.csv").write_text("\n".join(lines), encoding="utf-8")
    out = told(empty, "student.py", STUDENT)
    accuracy = float(out.split("accuracy ")[1].split()[0])
    assert accuracy > 0.7 and "majority" in out and "target units" in out


def test_a_reviewer_sees_the_verdicts_of_the_published_table_without_the_repository(empty: Path) -> None:
    words = REVIEWER.split()
    out = run(empty, str(empty / "env" / "bin" / words[0]), *words[1:], code=1)
    assert "Verdicts of the protocol" in out and "FAIL(D1+D2+D3)" in out and "fa-block" in out
    assert "Verdicts of the protocol" in (empty / "page" / "index.html").read_text(encoding="utf-8")


def test_a_device_is_an_argument_and_a_missing_one_a_line(empty: Path) -> None:
    out = told(empty, "device.py", DEVICE)
    assert "device cpu" in out or "device cuda" in out or "device mps" in out
    if "device cpu" in out:
        command = str(empty / "env" / "bin" / "assay")
        done = subprocess.run([command, "bench", "digits", "--device", "cuda"], cwd=empty, capture_output=True,
                              text=True, check=False)  # fmt: skip
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and "cuda" in done.stderr
