"""Numbers: errors end to end and of gradients, what rounding allows, whether the test could see a defect."""
