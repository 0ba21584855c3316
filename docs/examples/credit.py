"""The credit audit on digits: backprop, block-level DFA, and a change of units. Run: python docs/examples/credit.py"""

import torch

import assay
from assay.audits.credit import FAProtocol


def main() -> None:
    """Train two small nets, audit them, then measure the same net in other units."""
    task = assay.tasks.digits(seed=0)
    x, y = task.test.x[:128], task.test.y[:128]
    for name in ("backprop", "dfa"):
        model = assay.models.ResMLP(64, width=32, depth=3, seed=0)
        rule = assay.Backprop() if name == "backprop" else assay.FeedbackAlignment(model, kind="dfa", level="block")
        result = assay.train(model, task, rule, epochs=8, seed=0, batch_size=64, learning_rate=1e-2)
        finding = assay.audit_credit(model, x, y, rule=rule)
        print(f"{name}: test accuracy {result.test_accuracy:.3f}, {finding.verdict}")
        print(f"  {finding.key_finding}")
        for row in finding.tables[1].rows:
            print(f"  {row[0]}: cosine {row[1]:+.3f}, told from chance: {row[-1]}")
        if name == "backprop":
            with torch.no_grad():
                for part in (model.embed, *(block.w2 for block in model.blocks)):
                    for parameter in part.parameters():
                        parameter.mul_(1e6)
            fires = FAProtocol(model, x, y).run()["diagnostics"]["D2_ref_validity"]["fires"]
            same = assay.audit_credit(model, x, y, rule=rule)
            print(f"  stream x 1e6: published D2 fires: {fires}; ours: {same.verdict} as before")


if __name__ == "__main__":
    main()
