"""Budgets of an account, and removals beyond them: guarantees of every store (`listings.store.store.Store`)."""

from contextlib import suppress
from random import Random
from typing import Any

import pytest

from listings.domain.account_limits import AccountLimits
from listings.domain.changes import ChangePosition
from listings.domain.errors import Problem
from listings.domain.history import LATEST, OPERATOR, Actor, HistoryCutoffs
from listings.domain.imports import ImportBatch, ImportKey, ImportRow, Position
from listings.domain.listings import AddStep, ChangeStep
from listings.domain.mail import NewMail
from listings.domain.model import Account, ImportedListing
from listings.domain.reverts import Revert, RevertRequest
from listings.store.query import Query
from listings.store.store import Store
from tests.contract.conftest import Run
from tests.contract.helpers import CREATED, erase, set_values
from tests.contract.revert_writes import ALL_OF_BOT, BOT, OWNER, Reverts
from tests.contract.test_changes import NEW, erase_some_rows

BUCKETS = range(1024)
LONG = 1_000  # characters of a text
COUNT_STORED = (
    "SELECT COALESCE(sum(100 + octet_length(detail)), 0) FROM changes WHERE kind <> 'created'",
    "SELECT COALESCE(sum(100 + octet_length(fields)), 0) FROM revert_conflicts",
    """
    SELECT COALESCE(sum(octet_length(title) + octet_length(content) + octet_length(images)
        + CASE WHEN deleted_at IS NULL THEN 0 ELSE 600 END), 0) FROM listings
    """,
)


class History(Reverts):
    """The writes to an account, and the bytes that are counted for it."""

    moment = 1_500

    def delete(self, listing_id: int, actor: Actor = BOT) -> None:
        self.change(listing_id, actor, is_active=False, deleted_at=actor.moment)

    def edit(self, listing_id: int) -> None:
        """Make a change of 1,100 bytes or more."""
        self.moment += 1
        self.change(listing_id, Actor(7, self.moment), content=Random(self.moment).randbytes(LONG // 2).hex())

    def set_budget(self, stored_bytes: int | None) -> None:
        self.run(self.store.set_account_limits(*self.partition, (None, None, stored_bytes)))

    def shrink(self) -> int:
        """Remove rows beyond the budget, and return the number of steps."""
        steps = 0
        while self.run(self.store.shrink_history(*self.partition)):
            steps += 1
        return steps

    def purge(self, oldest: int, oldest_deleted: int = 0, latest: int = 2**62) -> int:
        return int(self.run(self.store.purge_changes(BUCKETS, oldest, 50, oldest_deleted, latest)))

    @property
    def stored(self) -> int:
        return int(self.run(self.store.count_listings(*self.partition)).stored_bytes)

    def count(self) -> int:
        """Count the stored bytes of all accounts from the rows."""
        store: Any = self.store
        return sum([int(self.run(store._fetch(statement))[0][0]) for statement in COUNT_STORED])  # noqa: SLF001

    def exists(self, listing_id: int) -> bool:
        return self.run(self.store.get_listing(listing_id)) is not None


@pytest.fixture
def history(store: Store, run: Run, account: Account) -> History:
    return History(store, run, account)


@pytest.mark.decision("G39")
@pytest.mark.parametrize("seed", range(3))
def test_every_write_counts_what_it_stores(history: History, seed: int) -> None:
    random = Random(seed)
    ids = [history.add(content="€" * random.randrange(50)) for _ in range(6)]
    for step in range(40):
        target, text = random.choice(ids), random.choice("aé€") * random.randrange(1, 80)
        kind = random.randrange(7)
        if kind == 0:
            history.change(target, OWNER, deleted_at=1_600, is_active=False)
        elif kind == 1:
            history.change(target, OWNER, deleted_at=None, title=text)
        elif kind == 2:
            history.change(target, BOT, content=text, title=f"a {text} b")
        elif kind == 3:
            history.run_batch(AddStep(NEW, CREATED), ChangeStep(target, set_values(images=f'["{text}"]')))
        elif kind == 4:
            import_rows(history, step, ImportRow(None, deleted), ImportRow(target, set_values(title=text)))
        elif kind == 5:
            request = RevertRequest("change", max(1, history.last - random.randrange(4)))
            with suppress(Problem):  # it may be removed
                history.begin(request)
        else:
            history.purge(random.randrange(1_500, 1_700), random.choice((0, 1_700)))
        ids = [one for one in ids if history.exists(one)] or [history.add()]
        assert history.stored == history.count()
    erase_some_rows(history, 3)
    assert history.stored == history.count()
    history.run(erase(history.store, history.partition[1], "erased@example.com", 2_000))
    assert history.stored == history.count()


def deleted(_: Any) -> ImportedListing:
    return ImportedListing(NEW, 0, CREATED, CREATED, 5)


def import_rows(history: History, number: int, *rows: ImportRow) -> None:
    key = ImportKey(*history.partition, b"%032d" % number, "csv", False)  # noqa: FBT003 - the columns of a row
    history.run(history.store.begin_import(key, None, 1_000, 0))
    history.run(history.store.import_listings(key, ImportBatch(Position(), Position(1, 1), rows), OWNER))


def test_a_row_of_a_single_create_is_not_counted(history: History) -> None:
    for _ in range(256):
        history.add()
    assert history.stored == history.count() == 256 * len("LampBrass.[]")


@pytest.mark.decision("G45")
def test_a_new_text_is_stored_as_what_differs(history: History) -> None:
    own = history.add(content="x" * 5_000)
    before = history.stored
    history.change(own, content="x" * 2_500 + "é" + "x" * 2_500, title="Lamp, brass")
    history.change(own, content="y" * 5_000)
    history.change(own, content="y" * 4_999)
    history.change(own, content="")
    assert history.stored - before < 4 * 5_200
    assert [next(iter(row[3].values()))[1] for row in history.history(own)[0][:-1]] == [
        *("", "y" * 4_999, "y" * 5_000, "x" * 2_500 + "é" + "x" * 2_500)
    ]


@pytest.mark.decision("G39")
def test_an_account_that_rewrites_its_texts_ends_at_its_budget(history: History) -> None:
    history.set_budget(30_000)
    ids = [history.add() for _ in range(5)]
    partition = history.partition
    for _ in range(10):
        for listing_id in ids:
            history.edit(listing_id)
        if history.stored > 30_000:
            assert history.run(history.store.list_accounts_over_budget()) == [partition]
        history.shrink()
        assert history.stored <= 30_000
        assert history.stored == history.count()
    assert history.run(history.store.list_accounts_over_budget()) == []
    assert history.stored > 25_000
    for _ in range(60):
        history.delete(history.add(content="x" * LONG), Actor(7, 1_700))
        history.shrink()
    assert history.stored <= 30_000
    assert history.stored == history.count()
    assert all(map(history.exists, ids))
    assert history.read(history.state.purged_revision)


def test_listings_deleted_before_the_oldest_change_set_go_first(history: History) -> None:
    first, own = history.add(content="x" * LONG), history.add()
    history.delete(first)
    assert history.purge(1_501) == 1
    assert history.exists(first)  # a change set that becomes old removes no listing
    for _ in range(3):
        history.edit(own)
    purged = history.state.purged_revision
    history.set_budget(history.stored - 1)
    assert history.shrink() == 1
    assert not history.exists(first)
    assert history.state.purged_revision == purged


def test_listings_go_with_the_change_set_that_deleted_them(history: History) -> None:
    own, gone, restored = history.add(), history.add(content="x" * LONG), history.add(content="x" * LONG)
    history.change(own, BOT, price_cents=5)
    for listing_id in (restored, gone):
        history.delete(listing_id)
    history.change(restored, OWNER, deleted_at=None)
    history.edit(own)
    last = history.last
    history.set_budget(history.stored - 100 - 10)
    assert history.shrink() == 1
    assert history.exists(gone)
    history.set_budget(history.stored - 120)
    assert history.shrink() == 1
    assert (history.exists(gone), history.exists(restored)) == (False, True)
    assert [change.edit_revision for change in history.read(history.state.purged_revision)] == [last - 1, last]
    assert history.history(own)[0][0][0] == last


def test_a_listing_stays_while_a_change_set_names_it(history: History) -> None:
    own, gone = history.add(), history.add()
    history.delete(gone)
    history.change(gone, OWNER, title="Changed by an import")
    history.set_budget(1)
    assert history.purge(1_501) == 1
    assert history.exists(gone)
    history.shrink()
    assert not history.exists(gone)
    assert history.exists(own)
    assert history.state.purged_revision == history.last


@pytest.mark.decision("G46")
def test_what_an_unfinished_revert_needs_stays_until_it_ends(history: History) -> None:
    ids = [history.add(OWNER) for _ in range(4)]
    for listing_id in ids:
        history.edit(listing_id)
    revert = history.begin(count=2)
    history.set_budget(1)
    assert history.shrink() == 0
    assert history.purge(10**10) == 0
    advanced = history.advance(revert)
    assert advanced is not None
    assert advanced.counts.reverted == 4
    assert [history.get(listing_id).content for listing_id in ids] == ["Brass."] * 4
    assert history.shrink() >= 1
    assert history.state.purged_revision == history.last


@pytest.mark.decision("G46")
def test_an_undo_that_needs_a_removed_change_set_is_gone(history: History) -> None:
    own = history.add(OWNER)
    for moment in range(1_500, 1_540):
        history.change(own, Actor(7, moment), price_cents=moment)
    history.set_budget(history.stored - 20 * 110)
    history.shrink()
    for request in (ALL_OF_BOT, ALL_OF_BOT._replace(since=1_510), RevertRequest("change", 5)):
        with pytest.raises(Problem) as gone:
            history.scan(request)
        assert gone.value.code == "changes_gone"
    assert history.begin(ALL_OF_BOT._replace(since=1_530)).counts.reverted == 1
    assert history.get(own).price_cents == 1_529


def revert_without_changes(history: History, now: int) -> Revert:
    """Revert a change of a listing whose title was changed later, so that there is only a conflict."""
    own = history.add(OWNER)
    history.change(own, BOT, title="Bot")
    history.change(own, OWNER, title="Owner")
    revert: Revert = history.begin(RevertRequest("change", history.last - 1), now=now)
    assert (revert.group_id, revert.counts.conflicts) == (None, 1)
    return revert


@pytest.mark.decision("G46")
def test_reverts_that_changed_nothing_are_deleted_by_their_age(history: History) -> None:
    old, new = (revert_without_changes(history, now) for now in (1_700, 1_900))
    history.purge(1_600)
    assert history.run(history.store.get_revert(old.key)) == old
    history.purge(1_800)  # there is no older change set
    assert history.run(history.store.get_revert(old.key)) is None
    assert history.run(history.store.get_revert(new.key)) == new
    assert len(history.conflicts(new)) == 1
    assert history.stored == history.count()


@pytest.mark.decision("G39")
def test_conflicts_of_reverts_that_changed_nothing_are_in_the_budget(history: History) -> None:
    revert = revert_without_changes(history, 10**8)
    history.set_budget(1)
    assert history.shrink() >= 1
    assert history.run(history.store.get_revert(revert.key)) is None
    assert history.stored == history.count() == len("OwnerBrass.[]")


@pytest.mark.decision("G46")
def test_a_revert_does_not_begin_after_its_change_sets_are_removed(history: History) -> None:
    own = history.add(OWNER)
    history.change(own, BOT, price_cents=5)
    scope, found = history.scan(RevertRequest("change", 2))
    history.purge(10**10)
    with pytest.raises(Problem) as gone:
        history.begin_scanned(scope, found)
    assert gone.value.code == "changes_gone"


def test_events_of_batches_go_with_their_change_sets(history: History) -> None:
    own = history.add(OWNER)
    for number in range(4):
        history.run_batch(ChangeStep(own, set_values(price_cents=number + 1)), AddStep(NEW, CREATED))
    history.set_budget(history.stored - 150)
    history.shrink()
    events = history.run(history.store._fetch(Query[tuple[int]]("SELECT subject FROM activity WHERE kind = 'batch'")))  # noqa: SLF001
    assert sorted(row[0] for row in events) == list(range(history.state.purged_revision + 1, history.last + 1))


def test_limits_of_an_account_replace_those_of_all(history: History, store: Store) -> None:
    history.run(store.set_account_limits(*history.partition, (2, 20, None)))
    assert history.run(store.get_account_limits(*history.partition)) == AccountLimits(2, 20, 0)
    history.add()
    with pytest.raises(Problem, match="at most 20 bytes"):
        history.add()
    history.run(store.set_account_limits(*history.partition, (2, None, None)))
    own = history.add()
    for write in (history.add, lambda: import_one(history)):
        with pytest.raises(Problem, match="at most 2 listings"):
            write()
    history.delete(own)
    history.add()
    history.begin(RevertRequest("change", history.last - 1))
    assert history.get(own).deleted_at is not None
    history.run(store.set_account_limits(*history.partition, (None, None, None)))
    history.add()


def import_one(history: History) -> None:
    key = ImportKey(*history.partition, b"d" * 32, "csv", False)  # noqa: FBT003 - the columns of a row
    history.run(history.store.begin_import(key, None, 1_000, 0))
    rows = [ImportRow(None, lambda _: ImportedListing(NEW, 0, CREATED, CREATED, None))]
    (outcome,) = history.run(history.store.import_listings(key, ImportBatch(Position(), Position(1, 1), rows)))
    raise outcome


@pytest.mark.decision("G11")
def test_listings_that_were_deleted_long_ago_are_removed(history: History) -> None:
    old, young, kept = (history.add() for _ in range(3))
    history.delete(old)
    history.delete(young, OWNER)
    revision = history.run(history.store.get_revisions(*history.partition)).revision
    assert history.purge(1_600, 1_600) == 2
    assert [history.exists(it) for it in (old, young, kept)] == [False, True, True]
    assert history.run(history.store.get_revisions(*history.partition)).revision == revision + 1  # of the lists' tags
    assert history.purge(1_600, 1_601) == 0  # its deletion is still stored
    assert history.purge(1_601, 1_601) == 2
    assert not history.exists(young)
    assert history.history(old) == ([], False)
    assert history.stored == history.count()


def test_a_removed_listing_leaves_no_words_in_an_index(history: History, store: Store) -> None:
    gone = history.add(title="Zebra")
    words: Any = store
    texts = [(gone, "Zebra", "Brass.")]
    history.run(words._run_script(lambda tx: words.engine.index_words(tx, history.partition[1], texts)))  # noqa: SLF001
    history.run(store.stamp_market(10, b"i" * 16, 1_000.0))
    history.delete(gone)
    assert history.purge(10**10, 10**10) == 2
    assert not history.exists(gone)  # although its deletion was not numbered, as without a market
    table = "listings_words_docsize" if "Sqlite" in type(words.engine).__name__ else "listing_words"
    assert history.run(words._fetch(f"SELECT count(*) FROM {table}"))[0][0] == 0  # noqa: SLF001, S608
    assert [(it.id, it.is_shown) for it in history.run(store.list_market_changes(0, 9))] == [(gone, False)]
    added = history.add()
    history.run(store.stamp_market(10, b"i" * 16, 1_000.0))
    assert [it.serial for it in history.run(store.page_newest())] == [2]
    assert history.exists(added)


@pytest.mark.decision("G45")
def test_a_change_set_is_never_earlier_than_the_one_before(history: History) -> None:
    own = history.add()
    for moment in (1_500, 1_530, 1_480, 1_500):
        history.change(own, Actor(7, moment), price_cents=moment)
    history.run_batch(ChangeStep(own, set_values(price_cents=1)))
    assert [change.moment for change in history.read(1)] == [1_500, 1_530, 1_530, 1_530, 1_530]


@pytest.mark.decision("G46")
@pytest.mark.parametrize("write", ["edit", "batch", "revert"])
def test_an_undo_by_time_finds_changes_of_a_clock_that_was_ahead(history: History, write: str) -> None:
    own, other = history.add(OWNER), history.add(OWNER)
    history.change(own, Actor(7, 2_100), price_cents=2)  # the clock is five minutes ahead until here
    for number, moment in enumerate(range(1_801, 1_809)):
        if write == "edit":
            history.change(other, Actor(8, moment), title=f"t{number}")
        elif write == "batch":
            history.run_batch(ChangeStep(other, set_values(title=f"t{number}")), actor=Actor(8, moment))
        else:
            history.begin(RevertRequest("change", 3 + number), now=moment)
    assert max(change.moment for change in history.read(2)) < 1_900
    assert history.begin(ALL_OF_BOT._replace(since=1_800)).counts.reverted == 1
    assert history.get(own).price_cents == 0


@pytest.mark.decision("G46")
def test_an_undo_by_time_finds_creates_of_a_clock_that_was_ahead(history: History) -> None:
    step = AddStep(NEW, "1970-01-01 00:35:00")  # 2,100 seconds
    own = history.run(history.store.add_listing(*history.partition, step, None, Actor(7, 2_100))).listing_id
    other = history.add(OWNER)
    for moment in range(1_801, 1_809):
        history.change(other, Actor(8, moment), price_cents=moment)
    history.change(other, Actor(8, 2_500), price_cents=1)
    assert history.begin(ALL_OF_BOT._replace(since=2_050)).counts.reverted == 1
    assert history.get(own).deleted_at is not None


@pytest.mark.decision("G45")
def test_a_clock_that_was_ahead_does_not_stop_a_purge(history: History) -> None:
    own, gone = history.add(), history.add()
    history.delete(gone, Actor(7, 10**8))
    history.change(own, Actor(7, 1_500), price_cents=1)
    history.change(own, Actor(7, 1_600), price_cents=2)
    assert history.purge(1_601, 1_601, latest=2_060) == 3
    assert history.exists(gone)
    assert history.purge(2_061, 2_061, latest=3_000) == 1
    assert not history.exists(gone)


def test_a_clock_that_was_ahead_does_not_keep_an_idle_account(history: History) -> None:
    history.change(history.add(), Actor(7, 10**8), price_cents=1)
    assert history.purge(1_601, latest=2_060) == 0
    assert [change.moment for change in history.read(1)] == [2_000]
    assert history.purge(2_001, latest=4_000) == 1


@pytest.mark.decision("G49")
def test_a_mail_of_a_clock_that_was_ahead_is_due(store: Store, run: Run, account: Account) -> None:
    mails = [NewMail(f"mail{it}", "key_created", account.email, account.id, "{}", 10**8) for it in range(2)]
    run(store.add_mail(mails[0]))
    claimed = run(store.claim_mail(1_000, 1_300))
    assert claimed.mail == mails[0]._replace(created_at=1_000)
    assert run(store.claim_mail(1_299, 1_600)) is None
    run(store.postpone_mail("mail0", 1_000 + 4 * 3600))
    assert run(store.claim_mail(1_100, 1_400)) is None
    run(store.postpone_mail("mail0", 10**8))
    assert run(store.claim_mail(1_100, 1_400)) is not None


def test_events_of_a_clock_that_was_ahead_are_purged(history: History) -> None:
    history.run(history.store.change_account(history.partition[1], lambda _: {"name": "B"}, Actor(OPERATOR, 10**8)))
    history.run(history.store.purge_history(BUCKETS, HistoryCutoffs(0, 0, 0, latest=2_000), 10))
    (event,) = history.run(history.store.page_events(*history.partition, LATEST, 10))
    assert event.moment == 2_000


def test_a_finished_import_is_forgotten(history: History) -> None:
    key = ImportKey(*history.partition, b"d" * 32, "csv", False)  # noqa: FBT003 - the columns of a row
    for finished_at, is_kept in ((None, True), (1_000, False)):
        history.run(history.store.begin_import(key, history.run(history.store.find_import(key)), 500, 0))
        end = ImportBatch(Position(), Position(1, 1), [], finished_at)
        history.run(history.store.import_listings(key, end))
        history.run(history.store.purge_history(BUCKETS, HistoryCutoffs(0, 0, 0, imports=1_001), 10))
        assert (history.run(history.store.find_import(key)) is not None) is is_kept


def test_positions_before_what_is_removed_are_gone(history: History) -> None:
    own = history.add()
    for _ in range(5):
        history.edit(own)
    history.set_budget(1)
    history.shrink()
    with pytest.raises(Problem, match="no longer stored"):
        history.page(ChangePosition(0))
    assert history.page(ChangePosition(history.last)).changes == []
