"""What reaches another host, and what does not."""

from __future__ import annotations

import logging
import math
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tests.shared_graph.server import Server, running
from tests.unit.graph_helpers import add_root, call, disorder, look, result, step
from tvsnap.graph import Edge, Lease, NewEdge
from tvsnap.host.waiting import Wait
from tvsnap.model.calls import next_state
from tvsnap.model.errors import InfrastructureError, UsageError
from tvsnap.plugins.shared_graph import SharedGraph

Host = Callable[[str], SharedGraph]
WAIT = 20.0  # seconds that anything may take here


def asked(
    graph: SharedGraph, state: str, command: str, *, timeout: float = 30.0, task: str = ""
) -> Edge | Lease | None:
    """Claims a call as a rollout would that finds no answer."""
    owner = graph.owner
    return graph.claim(state, call(command), timeout, owner=owner, is_alive=lambda _: True, task=task)


def command_of(edge: Edge) -> str:
    """Returns what a call executes."""
    command = edge.call.arguments["command"]
    assert isinstance(command, str)
    return command


def given(graph: SharedGraph) -> None:
    """Waits until all was given to other hosts."""
    until(lambda: graph.exchanged.waiting == 0 and not graph._released)


def answers(graph: SharedGraph, state: str, command: str) -> bool:
    """Returns whether a host answers a call."""
    return graph.lookup(state, call(command), 30.0) is not None


def until(holds: Callable[[], bool]) -> None:
    """Waits until something holds."""
    deadline = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


def digested(graph: SharedGraph, state: str, command: str, digest: str, *, ended: float) -> Edge:
    """Records a call that leaves something with a digest behind."""
    made = call(command)
    return graph.record(
        NewEdge(
            state,
            made,
            result("done"),
            next_state=next_state(state, made, identity=digest),
            digest=digest,
            comparable=True,
            ended=ended,
        )
    )


def test_what_one_recorded_answers_the_other(host: Host) -> None:
    one, other = host("one"), host("other")
    root = add_root(one)
    assert add_root(other) == root
    made = look(one, root, "ls", "f\0\udc80\n")
    long = step(one, root, "make", "x" * 100_000)
    behind = look(one, long.next_state, "cat out", "built\n")
    given(one)
    for edge in (made, long, behind):
        assert other.lookup(edge.state, edge.call, 30.0) is None
        found = asked(other, edge.state, command_of(edge), task="t")
        assert isinstance(found, Edge)
        assert (found.result, found.next_state, found.proven) == (edge.result, edge.next_state, edge.proven)
        assert other.lookup(edge.state, edge.call, 30.0) == found
        assert other.holder(edge.state, edge.call.key) is None
    assert not other.leases()
    assert other.exchanged.taken == 3
    assert other.tasks() == ["t"]
    other.flush()
    assert disorder(other.path) == []


def test_what_is_not_shared_stays_where_it_is(host: Host, database: str) -> None:
    one, other = host("one"), host("other")
    root = add_root(one)
    add_root(other)
    made = call("date > f")
    private = one.record(
        NewEdge(root, made, result("x"), next_state=next_state(root, made, identity="1"), shared=False, private="alone")
    )
    one.record_later(
        NewEdge(private.next_state, call("cat f"), result("noon"), next_state=private.next_state, reason="alone")
    )
    look(one, root, "last")
    given(one)
    assert isinstance(asked(other, root, "last"), Edge)
    assert isinstance(asked(other, root, "date > f"), Lease)
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM tvsnap.calls").fetchone() == (1,)


def test_one_of_all_hosts_executes_a_call(host: Host) -> None:
    one, other = host("one"), host("other")
    root = add_root(one)
    add_root(other)
    mine = asked(one, root, "make")
    assert isinstance(mine, Lease)
    assert mine.owner == "one"
    assert not mine.elsewhere
    began = time.time()
    theirs = asked(other, root, "make")
    assert isinstance(theirs, Lease)
    assert theirs.elsewhere
    assert abs(theirs.taken - began) < WAIT
    assert other.holder(root, call("make").key) is not None
    assert other.leases() == []
    made = step(one, root, "make", "ok")
    assert one.release(root, call("make").key, "one")
    until(lambda: other.holder(root, call("make").key) is None)
    found = asked(other, root, "make")
    assert isinstance(found, Edge), "who gives the call up has told of it before"
    assert found.result == made.result


def test_many_hosts_at_once_execute_each_call_once(host: Host) -> None:
    hosts = [host(f"host-{number}") for number in range(4)]
    roots = {add_root(graph) for graph in hosts}
    (root,) = roots
    executed: list[str] = []

    def run(graph: SharedGraph) -> None:
        for number in range(20):
            while True:
                found = asked(graph, root, f"call {number}")
                if isinstance(found, Edge):
                    assert found.result.output == f"result {number}"
                    break
                assert isinstance(found, Lease)
                if found.elsewhere:
                    time.sleep(0.005)
                    continue
                executed.append(f"call {number}")
                look(graph, root, f"call {number}", f"result {number}")
                graph.release(root, call(f"call {number}").key, graph.owner)
                break

    threads = [threading.Thread(target=run, args=(graph,)) for graph in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(executed) == sorted(f"call {number}" for number in range(20))
    for graph in hosts:
        assert disorder(graph.path) == []


def test_a_host_that_shows_no_life_executes_nothing(host: Host, database: str) -> None:
    one, other = host("one"), host("other")
    root = add_root(one)
    add_root(other)
    assert isinstance(asked(one, root, "make"), Lease)
    theirs = asked(other, root, "make")
    assert isinstance(theirs, Lease)
    assert theirs.elsewhere
    one._ending = True  # it shows life no more, as if its machine had stopped
    for thread in one._threads:
        one._work.set()
        thread.join(WAIT)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("UPDATE tvsnap.sessions SET seen = seen - interval '1 min' WHERE id LIKE '%/one/%'")
    mine = asked(other, root, "make")
    assert isinstance(mine, Lease)
    assert not mine.elsewhere


def test_a_killed_process_keeps_nobody_waiting_for_long(host: Host, database: str, tmp_path: Path) -> None:
    other = host("other")
    root = add_root(other)
    code = """
import sys, time
from pathlib import Path
from tests.unit.graph_helpers import add_root, call, look
from tvsnap.plugins.shared_graph import SharedGraph
graph = SharedGraph(Path(sys.argv[1]), "killed", sys.argv[2])
root = add_root(graph)
look(graph, root, "ls", "f")
assert not graph.claim(root, call("make"), 30.0, owner="killed", is_alive=bool).elsewhere
while graph.exchanged.waiting:
    time.sleep(0.01)
print("ready", flush=True)
time.sleep(60)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "killed" / "tvsnap.db", database], stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        theirs = asked(other, root, "make")
        process.kill()
    assert isinstance(theirs, Lease)
    assert theirs.elsewhere
    assert isinstance(asked(other, root, "ls"), Edge)
    until(lambda: other.holder(root, call("make").key) is None)
    mine = asked(other, root, "make")
    assert isinstance(mine, Lease)
    assert not mine.elsewhere


def test_what_differs_from_time_to_time_answers_nobody_anywhere(host: Host) -> None:
    one, other, third = host("one"), host("other"), host("third")
    root = [add_root(graph) for graph in (one, other, third)].pop()
    made = look(one, root, "uptime", "1")
    given(one)
    taken = asked(other, root, "uptime")
    assert isinstance(taken, Edge)
    one.mark_nondeterministic(made, "another time it said 2")
    until(lambda: other.lookup(root, call("uptime"), 30.0) is None)
    assert other.edge(taken.id).reason == "another time it said 2"
    assert asked(third, root, "uptime") is None, "nobody waits for a call whose result nobody shares"
    until(lambda: third.holder(root, call("uptime").key) is None)


def test_two_hosts_that_leave_the_same_behind_prove_it(host: Host) -> None:
    one, other, third = host("one"), host("other"), host("third")
    root = [add_root(graph) for graph in (one, other, third)].pop()
    made = digested(one, root, "make", "d1", ended=time.time() - 60)
    given(one)
    for graph in (other, third):
        assert isinstance(asked(graph, root, "make"), Lease), "nobody knows yet whether it leads there again"
        graph.release(root, call("make").key, graph.owner)
        given(graph)
    again = digested(other, root, "make", "d1", ended=time.time())
    assert again.next_state == made.next_state
    assert again.proven
    for graph in (one, third):
        until(partial(answers, graph, root, "make"))


def test_a_host_that_sees_something_else_refutes_the_proof(host: Host) -> None:
    one, other, third = host("one"), host("other"), host("third")
    root = [add_root(graph) for graph in (one, other, third)].pop()
    made = digested(one, root, "make", "d1", ended=time.time() - 60)
    one.prove(made)
    given(one)
    assert isinstance(asked(third, root, "make"), Edge)
    digested(other, root, "make", "d2", ended=time.time())
    until(lambda: not any(answers(graph, root, "make") for graph in (one, third)))
    one.prove(made)
    given(one)
    fourth = host("fourth")
    add_root(fourth)
    assert isinstance(asked(fourth, root, "make"), Lease), "what was refuted once is never proven"


def test_what_depends_on_the_network_is_replaced_by_what_it_says_later(host: Host) -> None:
    one, other, third = host("one"), host("other"), host("third")
    root = [add_root(graph) for graph in (one, other, third)].pop()

    def fetched(graph: SharedGraph, said: str, ended: float) -> Edge:
        return graph.record(
            NewEdge(root, call("curl"), result(said), next_state=root, asked=("example.org:80",), ended=ended)
        )

    fetched(one, "old", time.time() - 600)
    given(one)
    old = asked(other, root, "curl")
    assert isinstance(old, Edge)
    assert old.result.output == "old"
    other.retire(old, "too old")
    assert isinstance(asked(other, root, "curl"), Lease), "what was retired here is not taken over again"
    fetched(other, "new", time.time())
    given(other)
    new = asked(third, root, "curl")
    assert isinstance(new, Edge)
    assert new.result.output == "new"


def test_what_is_known_of_waits_and_timeouts_travels_too(host: Host) -> None:
    one, other = host("one"), host("other")
    root = add_root(one)
    add_root(other)
    one.record(NewEdge(root, call("cat"), result("x", 0.5, None, timed_out=True), next_state=root, timeout=0.5))
    one.record(NewEdge(root, call("cat log"), result("line"), next_state=root, waited=5.0, quiet_s=math.inf))
    given(one)
    assert isinstance(asked(other, root, "cat", timeout=0.5), Edge)
    assert isinstance(asked(other, root, "cat", timeout=0.7), Lease)
    found = other.claim(root, call("cat log"), 30.0, owner="other", is_alive=bool, wait=Wait(5.0), quiet_s=1.0)
    assert isinstance(found, Edge)


def test_without_the_database_a_host_goes_on_by_itself(tmp_path: Path) -> None:
    with running() as server:
        url = server.url("calls")
        with SharedGraph(tmp_path / "one" / "tvsnap.db", "one", url) as one:
            root = add_root(one)
            look(one, root, "before", "1")
            given(one)
            server.stop()
            found = asked(one, root, "make")
            assert isinstance(found, Lease)
            assert not found.elsewhere
            step(one, root, "make", "ok")
            one.release(root, call("make").key, "one")
            assert isinstance(asked(one, root, "make"), Edge)
            until(lambda: one.exchanged.lost is not None)
            assert one.exchanged.waiting == 1
            server.start()
            given(one)
            assert one.exchanged.lost is None
            with SharedGraph(tmp_path / "other" / "tvsnap.db", "other", url) as other:
                add_root(other)
                assert isinstance(asked(other, root, "make"), Edge)
        server.stop()
        with pytest.raises(InfrastructureError, match="see that it runs"):
            SharedGraph(tmp_path / "third" / "tvsnap.db", "third", url)
        server.start()


def test_with_a_database_that_is_frozen_a_host_goes_on_by_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its kernel still takes what is sent, so that no connection breaks: only the client can end the wait."""
    with running() as server, SharedGraph(tmp_path / "one" / "tvsnap.db", "one", server.url("calls")) as one:
        root = add_root(one)
        look(one, root, "before", "1")
        given(one)
        caplog.clear()
        with ThreadPoolExecutor(1) as thread, server.frozen():
            found = thread.submit(asked, one, root, "make").result(WAIT)
            assert isinstance(found, Lease)
            assert not found.elsewhere
            assert one.exchanged.lost is not None
            step(one, root, "make", "ok")
            one.release(root, call("make").key, "one")
            assert isinstance(asked(one, root, "make"), Edge)
            until(lambda: any("going on without it" in record.message for record in caplog.records))
        given(one)
        assert one.exchanged.lost is None
        until(lambda: any("can be used again" in record.message for record in caplog.records))
        assert {record.name for record in caplog.records if record.levelno > logging.INFO} == {"tvsnap.graph"}
        with ThreadPoolExecutor(1) as thread, server.frozen():
            thread.submit(one.close).result(WAIT)


def test_tables_that_were_removed_are_made_anew(host: Host, database: str) -> None:
    one, other = host("one"), host("other")
    root = add_root(one)
    add_root(other)
    made = look(one, root, "before")
    given(one)
    assert isinstance(asked(other, root, "before"), Edge)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP SCHEMA tvsnap CASCADE")
    assert isinstance(asked(one, root, "make"), Lease)
    look(one, root, "after", "1")
    given(one)
    assert one.exchanged.dropped == 0
    until(lambda: isinstance(asked(other, root, "after"), Edge))
    one.mark_nondeterministic(made, "it differs")
    until(lambda: not answers(other, root, "before"))
    again = other.recorded(root, call("after"))
    assert again is not None
    other.mark_nondeterministic(again, "it differs, too")
    until(lambda: not answers(one, root, "after"))


def test_a_database_that_was_restored_elsewhere_has_other_numbers(host: Host, database: str, tmp_path: Path) -> None:
    one, other = host("one"), host("other")
    root = add_root(one)
    add_root(other)
    first, second, third = (look(one, root, f"call {number}") for number in range(3))
    given(one)
    path = tmp_path / "away" / "tvsnap.db"
    with SharedGraph(path, "away", database) as away:
        add_root(away)
        for number in range(3):
            for graph in (other, away):
                assert isinstance(asked(graph, root, f"call {number}"), Edge)
        one.mark_nondeterministic(first, "it differs")
        until(lambda: not answers(other, root, "call 0") and not answers(away, root, "call 0"))
    with sqlite3.connect(path) as file:
        file.execute("UPDATE counters SET value = 1e12 WHERE name LIKE 'shared %'")
    file.close()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("UPDATE tvsnap.calls SET changed = '1000000000000'::xid8 WHERE changed IS NOT NULL")
    for graph in (one, other):
        graph._mark = 10**12
    one.mark_nondeterministic(second, "it differs, too")
    until(lambda: not answers(other, root, "call 1"))
    with SharedGraph(path, "away", database) as away:
        until(lambda: not answers(away, root, "call 1"))
        one.mark_nondeterministic(third, "all differ")
        until(lambda: not answers(away, root, "call 2") and not answers(other, root, "call 2"))


def test_what_was_found_out_while_a_host_was_away_is_made_up_for(host: Host, database: str, tmp_path: Path) -> None:
    one = host("one")
    root = add_root(one)
    made = look(one, root, "uptime", "1")
    given(one)
    path = tmp_path / "away" / "tvsnap.db"
    with SharedGraph(path, "away", database) as away:
        add_root(away)
        assert isinstance(asked(away, root, "uptime"), Edge)
    one.mark_nondeterministic(made, "it differs")
    given(one)
    with SharedGraph(path, "away", database) as away:
        until(lambda: away.lookup(root, call("uptime"), 30.0) is None)


def test_damaged_records_are_left_alone(host: Host, database: str) -> None:
    one, other = host("one"), host("other")
    root = add_root(one)
    add_root(other)
    for number in range(3):
        look(one, root, f"call {number}", "x")
    given(one)
    with psycopg.connect(database, autocommit=True) as connection:
        records = connection.execute("SELECT call_key, record FROM tvsnap.calls").fetchall()
        changed = [records[0][1][:-5], b"", records[1][1]]  # cut, empty, and another call's
        for (key, _), record in zip(records, changed, strict=True):
            connection.execute("UPDATE tvsnap.calls SET record = %s WHERE call_key = %s", (record, key))
    answered = [asked(other, root, f"call {number}") for number in range(3)]
    assert sum(isinstance(one, Lease) for one in answered) >= 2
    for found in answered:
        assert isinstance(found, Lease) or found is None or found.call in [call(f"call {n}") for n in range(3)]


def test_who_may_not_write_says_so_and_goes_on(server: Server, database: str, tmp_path: Path) -> None:
    SharedGraph(tmp_path / "first" / "tvsnap.db", "first", database).close()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA tvsnap TO reader")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA tvsnap TO reader")
        reading = database.replace("tester@", "reader@")
        with SharedGraph(tmp_path / "reader" / "tvsnap.db", "reader", reading) as graph:
            root = add_root(graph)
            assert isinstance(asked(graph, root, "make"), Lease)
            look(graph, root, "ls")
            until(lambda: graph.exchanged.dropped == 1)
            assert "permission denied" in str(graph.exchanged.lost)
        connection.execute("DROP OWNED BY reader")
        connection.execute("DROP ROLE reader")


def test_an_address_of_something_else_is_refused(tmp_path: Path, database: str) -> None:
    for wrong in ("mysql://host/db", "host", "", "postgresql://host:port/db", "/tmp/graph.db"):
        with pytest.raises(UsageError, match="must be PostgreSQL's"):
            SharedGraph(tmp_path / "tvsnap.db", "one", wrong)
    with pytest.raises(UsageError) as raised:
        SharedGraph(tmp_path / "tvsnap.db", "one", "mysql://me:secret@host/db")
    assert "secret" not in str(raised.value)
    with pytest.raises(InfrastructureError) as failed:
        SharedGraph(tmp_path / "tvsnap.db", "one", "postgresql://me:secret@127.0.0.1:1/db")
    assert "secret" not in str(failed.value)
    SharedGraph(tmp_path / "tvsnap.db", "one", database).close()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("UPDATE tvsnap.about SET version = 99")
    with pytest.raises(InfrastructureError, match="format 99"):
        SharedGraph(tmp_path / "tvsnap.db", "one", database)
