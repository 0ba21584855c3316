"""The ledger of looks: plans before cells, verdicts after, shared by whoever shares the store."""

from assay.engine import Store


def test_a_look_is_planned_once_and_keeps_its_first_verdict(tmp_path):
    ledger = Store(tmp_path).ledger()
    assert ledger.of("parity") == []
    entry = ledger.plan("parity", (42, 43, 44), code="a")
    again = Store(tmp_path).ledger()
    assert [(look.seeds, look.verdict) for look in again.of("parity")] == [((42, 43, 44), "")]
    again.plan("parity", (42, 43, 44), code="a")
    ledger.saw("parity", entry, verdict="INCONCLUSIVE", evidence="directional")
    ledger.saw("parity", entry, verdict="PASS", evidence="confirmed")
    (only,) = again.of("parity")
    assert (only.verdict, only.evidence, only.at) == ("INCONCLUSIVE", "directional", entry.at)
    assert again.of("another claim") == []


def test_looks_come_in_the_order_of_their_plans(tmp_path):
    ledger = Store(tmp_path).ledger()
    for seeds, code in (((1, 2, 3), "a"), ((1, 2, 3, 4), "a"), ((7, 8, 9), "a"), ((1, 2, 3), "b")):
        ledger.plan("parity", seeds, code=code)
    assert [(look.seeds[0], len(look.seeds), look.code) for look in ledger.of("parity")] == [
        (1, 3, "a"), (1, 4, "a"), (7, 3, "a"), (1, 3, "b"),
    ]  # fmt: skip


def test_a_line_nobody_can_read_says_nothing(tmp_path):
    store = Store(tmp_path)
    store.ledger().plan("parity", (1, 2, 3), code="a")
    folder = next((tmp_path / "looks").iterdir())
    for name, text in (("x-planned.json", "{"), ("y-planned.json", '{"look": "y"}'), ("z-seen.json", "[1]")):
        (folder / name).write_text(text)
    assert len(store.ledger().of("parity")) == 1
    assert list(store) == []


def test_a_look_that_nobody_made_says_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_KEY", "the key of somebody else")
    forger = Store(tmp_path).ledger()
    entry = forger.plan("parity", (1, 2, 3), code="a")
    forger.saw("parity", entry, verdict="PASS", evidence="confirmed")
    assert len(forger.of("parity")) == 1
    monkeypatch.setenv("ASSAY_KEY", "the key of the user here")
    mine = Store(tmp_path).ledger()
    assert mine.of("parity") == []
    own = mine.plan("parity", (4, 5, 6), code="a")
    mine.saw("parity", own, verdict="FAIL", evidence="confirmed")
    folder = next((tmp_path / "looks").iterdir())
    for file in folder.glob("*-seen.json"):
        file.write_text(file.read_text().replace('"FAIL"', '"PASS"'))
    assert [look.verdict for look in mine.of("parity")] == [""]


def test_an_honest_look_moved_to_another_claim_says_nothing_there(tmp_path):
    ledger = Store(tmp_path).ledger()
    entry = ledger.plan("easy", (1, 2, 3), code="a")
    ledger.saw("easy", entry, verdict="PASS", evidence="confirmed")
    ledger.plan("hard", (7, 8, 9), code="a")
    easy, hard = sorted((tmp_path / "looks").iterdir(), key=lambda folder: len(list(folder.iterdir())), reverse=True)
    for file in easy.iterdir():
        (hard / file.name).write_bytes(file.read_bytes())
    assert [look.seeds for look in ledger.of("hard")] == [(7, 8, 9)]


def test_an_object_store_keeps_the_ledger_too():
    ledger = Store("memory://ledger-test").ledger()
    entry = ledger.plan("parity", (1, 2, 3), code="a")
    ledger.saw("parity", entry, verdict="PASS", evidence="")
    assert [look.verdict for look in ledger.of("parity")] == ["PASS"]
