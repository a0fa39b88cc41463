"""Groups of change sets: imports, reverts, bulk actions of the console, and writes with the same name."""

from listings.domain.changes import GroupOfChanges, GroupPage
from listings.domain.history import Actor, ChangeGroup
from listings.store import change_sql, sql
from listings.store.change_sets import group_sql
from listings.store.mapping import Partition
from listings.store.scripts import audit
from listings.store.scripts.script import Transaction


async def find_id(tx: Transaction, partition: Partition, group: ChangeGroup, edit_revision: int) -> int:
    """Return the id of a group, whose first change set is `edit_revision` if it is new. The account must be locked."""
    rows = await tx.fetch(group_sql.FIND_GROUP, (*partition, group.name))
    return int(rows[0][0]) if rows else edit_revision


async def add(  # noqa: PLR0913, PLR0917 - the columns
    tx: Transaction, partition: Partition, group_id: int, kind: str, actor: Actor, edit_revision: int, changes: int
) -> None:
    """Add a change set to its group, which has the actor's name unless it is an import or a revert."""
    group = actor.group if kind not in {"import", "reverted"} else None
    name, is_bulk = (None, False) if group is None else (group.name, group.is_bulk)
    revision = int((await tx.fetch(sql.GET_REVISIONS, partition))[0][0]) if is_bulk else None
    kind = kind if group is None else "bulk" if is_bulk else "named"
    row = (group_id, kind, name, actor.key_id, actor.moment, edit_revision, changes, revision)
    sets, total, revision = (await tx.fetch(group_sql.ADD_TO_GROUP, (*partition, *row)))[0]
    if group is not None and is_bulk:
        detail = f'{group.detail},"listings":{total}}}'
        await audit.record_bulk(tx, partition, revision, actor, group_id, detail, is_first=sets == 1)


async def read_page(tx: Transaction, partition: Partition, before: int, count: int) -> GroupPage:
    """Return the groups with ids below `before`, newest first, at most `count`."""
    rows = await tx.fetch(group_sql.PAGE_GROUPS, (*partition, before, count + 1))
    purged = (await tx.fetch(change_sql.GET_EDIT_STATE, partition))[0][1]
    return GroupPage([GroupOfChanges(*row) for row in rows[:count]], len(rows) > count, int(purged))


async def add_single(tx: Transaction, partition: Partition, actor: Actor) -> None:
    """Add the account's last change set, which the actor has just written and which has one row, to its group."""
    if actor.group is None:
        return
    edit_revision = int((await tx.fetch(change_sql.GET_EDIT_STATE, partition))[0][0])
    group_id = await find_id(tx, partition, actor.group, edit_revision)
    moment = int((await tx.fetch(group_sql.SET_GROUP_OF_CHANGE, (*partition, edit_revision, group_id)))[0][0])
    await add(tx, partition, group_id, "single", actor._replace(moment=moment), edit_revision, 1)
