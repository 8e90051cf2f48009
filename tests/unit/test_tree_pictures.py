"""Pictures of the tree of states: `tvsnap tree --svg`, `--html` and `--dot`."""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from cli import tree_dot, tree_picture, tree_svg
from cli.tree_picture import Picture
from tests.fakes.caches import bash, open_cache, settle
from tests.unit.cli_helpers import CommandLine, make_command_line
from tests.unit.graph_helpers import add_root, call, look, result, step, walk
from tvsnap.graph import Edge, Graph, NewEdge
from tvsnap.model.calls import ToolCall, next_state

HOSTILE = (
    "</script><script>alert(1)</script>",
    "</title></svg><img src=x onerror=alert(1)>",
    "]]> --> <!-- <![CDATA[ <?xml",
    '"\' " onload="alert(1)" \'',
    "\x00\x01\x1b[31m\x7f\x9b\r\ufffe\uffff",
    "\ud800 half \udfff and \udc80",
    "\u202eright to left\u2028 line",
    "&amp; &lt;b&gt; &#0; &#xd800;",
    'back\\slash \\" \\N \\l \\',
)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return make_command_line(tmp_path, monkeypatch)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph(tmp_path / "graph.db")


def picture_of(graph: Graph, *, reward: bool = False, everything: bool = False) -> Picture:
    nodes, rollouts = graph.tree(), graph.rollouts()
    rewards = tree_picture.rewards_by_state(nodes, rollouts)
    roots = {root.hash: root for root in graph.roots()}
    return tree_picture.draw(
        nodes, roots, rollouts, rewards, colour="reward" if reward else "source", everything=everything
    )


def end_rollout(graph: Graph, root: str, state: str, reward: float | None = None, task: str = "") -> None:
    rollout = graph.begin_rollout(task=task, image="terminal", root=root)
    graph.end_rollout(rollout.id, state)
    if reward is not None:
        graph.record_reward(rollout.id, reward)
    graph.flush()


def fail(graph: Graph, state: str, command: str, code: int) -> Edge:
    made = call(command)
    return graph.record(NewEdge(state, made, result("", 0.1, code), next_state=next_state(state, made)))


class Found(NamedTuple):
    """What a parser finds in a page: its elements with their attributes, and its scripts and styles."""

    elements: list[tuple[str, dict[str, str | None]]]
    texts: dict[str, list[str]]


def parse(page: str) -> Found:
    """Reads a page as a browser does, as far as elements and their texts go."""
    found = Found([], {"script": [], "style": [], "title": []})
    inside: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attributes: Sequence[tuple[str, str | None]]) -> None:
            found.elements.append((tag, dict(attributes)))
            if tag in found.texts:
                inside[:] = [tag]
                found.texts[tag].append("")

        def handle_endtag(self, tag: str) -> None:
            inside.clear()

        def handle_data(self, data: str) -> None:
            for tag in inside:
                found.texts[tag][-1] += data

    Reader().feed(page)
    return found


class TestWhatIsDrawn:
    def test_leaves_have_rows_in_order_and_parents_stand_between_them(self, graph: Graph) -> None:
        root = add_root(graph)
        first = step(graph, root, "a").next_state
        walk(graph, first, "b", "c")
        step(graph, first, "d")
        step(graph, root, "e")
        marks = picture_of(graph).marks
        places = {mark.label: (mark.column, mark.row) for mark in marks[1:]}
        assert places == {"a": (1, 0.5), "b": (2, 0.0), "c": (3, 0.0), "d": (2, 1.0), "e": (1, 2.0)}
        assert (marks[0].column, marks[0].row, marks[0].kind) == (0, 1.25, "root")
        assert [mark.parent for mark in marks[1:]] == [0, 1, 2, 1, 0]

    def test_chains_and_branches_are_folded(self, graph: Graph) -> None:
        root = add_root(graph)
        chain = walk(graph, root, *(f"c{n}" for n in range(8)))
        for n in range(20):
            step(graph, chain[-1], f"branch {n}")
        folded = picture_of(graph)
        labels = [mark.label for mark in folded.marks[1:]]
        assert labels[:3] == ["c0", "⋮ 6 calls", "c7"]
        assert len(labels) == 3 + 8 + 1
        assert labels[-1] == "… 12 more branches"
        assert "c3" in folded.marks[2].title
        assert folded.states == 29
        everything = picture_of(graph, everything=True)
        assert [mark.label for mark in everything.marks[1:]] == [
            *(f"c{n}" for n in range(8)),
            *(f"branch {n}" for n in range(20)),
        ]

    def test_calls_and_roots_that_are_alike_are_told_apart(self, graph: Graph) -> None:
        edits = [f"cd /srv/app && sed -i 's/total = price/total = {new}(price)/' shop.py" for new in ("round", "ceil")]
        for salt in ("run-7", "run-8"):
            root = add_root(graph, salt=salt)
            for edit in edits:
                step(graph, root, edit)
        marks = picture_of(graph).marks
        assert {(mark.label, mark.note) for mark in marks if mark.kind == "root"} == {
            ("terminal", "salt run-7"),
            ("terminal", "salt run-8"),
        }
        labels = [mark.label for mark in marks if mark.kind != "root"]
        assert ["round" in label for label in labels] == ["ceil" not in label for label in labels] == [True, False] * 2
        assert all(len(label) <= tree_picture.LABEL for label in labels)

    def test_a_thousand_different_rollouts_stay_readable(self, graph: Graph) -> None:
        root = add_root(graph)
        for often in range(6):
            first = step(graph, root, f"often {often}")
            for some in range(6):
                second = step(graph, first.next_state, f"some {some}")
                for seldom in range(28):
                    edge = step(graph, second.next_state, f"{often} {some} {seldom}")
                    for _ in range(40 if (often, some, seldom) == (3, 3, 3) else 0):
                        graph.touch_hit(edge)
        graph.flush()
        picture = picture_of(graph)
        assert picture.states == 1 + 6 + 36 + 6 * 6 * 28
        assert 6 <= picture.rows <= tree_picture.ROWS
        labels = [mark.label for mark in picture.marks]
        assert "3 3 3" in labels, "what is often used is drawn"
        assert "… 28 branches" in labels
        assert "… 27 more branches" in labels
        assert len(picture_of(graph, everything=True).marks) == picture.states

    def test_widths_and_colours_tell_of_answers(self, graph: Graph) -> None:
        root = add_root(graph)
        edges = [step(graph, root, name) for name in "abcd"]
        for edge, hits in zip(edges, (0, 1, 3, 40), strict=True):
            for _ in range(hits):
                graph.touch_hit(edge)
        graph.flush()
        marks = picture_of(graph).marks[1:]
        assert [(mark.visits, mark.shade) for mark in marks] == [(1, 0), (2, 1), (4, 2), (41, 4)]
        drawn = tree_svg.svg(picture_of(graph), "x")
        widths = re.findall(r'class="edge s\d" stroke-width="([\d.]+)" d="M-', drawn)
        assert sorted(map(float, widths)) == list(map(float, widths))
        assert len(set(widths)) == 4

    def test_colours_tell_of_rewards_of_all_that_ended_below(self, graph: Graph) -> None:
        root = add_root(graph)
        first, other = step(graph, root, "a").next_state, step(graph, root, "none").next_state
        good, bad = step(graph, first, "good").next_state, step(graph, first, "bad").next_state
        for state, reward in ((good, 1.0), (bad, 0.0), (good, 1.0), (bad, 0.0), (other, None)):
            end_rollout(graph, root, state, reward)
        picture = picture_of(graph, reward=True)
        shades = {mark.label: mark.shade for mark in picture.marks[1:]}
        assert shades == {"a": 2, "good": 4, "bad": 0, "none": None}
        assert picture.shades == ["reward 0", "0.25", "0.5", "0.75", "1"]
        assert "reward 0.5, the mean of 4" in next(mark.title for mark in picture.marks if mark.label == "a")

    def test_without_rewards_it_says_so(self, graph: Graph) -> None:
        step(graph, add_root(graph), "a")
        assert picture_of(graph, reward=True).shades == ["no reward was recorded"]

    def test_failures_are_marked(self, graph: Graph) -> None:
        root = add_root(graph)
        after = fail(graph, root, "make broken", 2).next_state
        look(graph, after, "cat x")
        graph.record(NewEdge(after, call("test -e y"), result("", 0.1, 1), next_state=after))
        mark = picture_of(graph).marks[1]
        assert (mark.label, mark.failure, mark.note) == ("make broken", "✗ 2", "+ 2 calls, 1 ✗")
        assert "exit status 2" in mark.title
        assert "test -e y ✗ 1" in mark.title
        drawn = ElementTree.fromstring(tree_svg.svg(picture_of(graph), "x"))
        assert [one.text for one in drawn.iter(f"{SVG}tspan")] == [" ✗ 2"]

    def test_long_calls_are_cut_in_the_label_and_whole_in_the_text(self, graph: Graph) -> None:
        root = add_root(graph)
        command = "echo " + "long " * 100
        step(graph, root, command)
        step(graph, root, "x" * 100_000)
        _, first, second = picture_of(graph).marks
        assert len(first.label) <= tree_picture.LABEL
        assert first.label.endswith("…")
        assert command in first.title
        assert len(second.title) < 5000
        assert "96,000 more characters" in second.title

    def test_a_tree_deeper_than_the_stack_of_python(self, graph: Graph) -> None:
        walk(graph, add_root(graph), *(f"c{n}" for n in range(sys.getrecursionlimit() + 200)))
        picture = picture_of(graph, everything=True)
        assert picture.columns == sys.getrecursionlimit() + 201
        assert picture.rows == 1
        assert len(picture_of(graph).marks) == 4


class TestHostileText:
    """What agents typed and sandboxes said is text in each picture, and nothing else."""

    @pytest.fixture
    def picture(self, graph: Graph) -> Picture:
        root = add_root(graph, salt=HOSTILE[0], image=HOSTILE[1])
        end_rollout(graph, root, root, 1.0, task=HOSTILE[0])
        for text in HOSTILE:
            made = ToolCall("bash", {"command": text})
            reason = text.encode(errors="replace").decode()
            after = next_state(root, made)
            edge = graph.record(NewEdge(root, made, result("", 0.1, 1), next_state=after, reason=reason, shared=False))
            look(graph, edge.next_state, text)
            made = ToolCall("tool" + text[:5].replace("\x00", ""), {text: text})
            graph.record(NewEdge(edge.next_state, made, result(), next_state=next_state(edge.next_state, made)))
        return picture_of(graph, everything=True)

    def test_svg(self, picture: Picture) -> None:
        text = tree_svg.svg(picture, HOSTILE[0] + HOSTILE[1])
        text.encode()
        drawn = ElementTree.fromstring(text)
        names = {element.tag.removeprefix(SVG) for element in drawn.iter()}
        assert names == {"svg", "title", "style", "rect", "text", "tspan", "path", "circle", "g"}
        assert not [name for element in drawn.iter() for name in element.attrib if name.startswith("on")]
        titles = ["".join(element.itertext()) for element in drawn.iter(f"{SVG}title")]
        for told in (HOSTILE[0], HOSTILE[1], HOSTILE[2], HOSTILE[3], HOSTILE[7], HOSTILE[8]):
            assert any(told in title for title in titles), told
        assert any("^@^A^[[31m^?\\x9b^M\\ufffe\\uffff" in title for title in titles)
        assert any("\\ud800 half \\udfff and \\x80" in title for title in titles)

    def test_html(self, picture: Picture) -> None:
        text = tree_svg.page(picture, HOSTILE[0] + HOSTILE[1])
        text.encode()
        found = parse(text)
        names = [name for name, _ in found.elements]
        assert names.count("script") == names.count("style") == 1
        assert "img" not in names
        assert not [name for _, attributes in found.elements for name in attributes if name.startswith("on")]
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202e\ud800-\udfff\ufffe\uffff]", text)

    def test_dot(self, picture: Picture) -> None:
        text = tree_dot.dot(picture, HOSTILE[8])
        text.encode()
        body = re.sub(r'"(?:[^"\\]|\\.)*"', "S", text, flags=re.DOTALL)
        assert re.fullmatch(r"digraph tvsnap \{\n(?:  [\w\[\],=;>. -]+\n)+\}\n", body), body
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202e\ud800-\udfff]", text)


class TestPage:
    def test_it_asks_for_nothing_and_runs_only_its_own_script(self, graph: Graph) -> None:
        walk(graph, add_root(graph), "curl http://example.org", "b")
        found = parse(tree_svg.page(picture_of(graph), "x"))
        (policy,) = (a["content"] for name, a in found.elements if a.get("http-equiv") == "Content-Security-Policy")
        rules = dict(rule.strip().split(" ", 1) for rule in str(policy).split(";"))
        assert rules.pop("img-src") == "data:"
        for rule, kind in (("script-src", "script"), ("style-src", "style")):
            (inline,) = found.texts[kind]
            digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
            assert rules.pop(rule) == f"'sha256-{digest}'"
        assert set(rules.values()) == {"'none'"}
        assert set(rules) == {"default-src", "base-uri", "form-action"}
        for _, attributes in found.elements:
            assert "style" not in attributes
            assert "src" not in attributes
            assert attributes.get("href") in (None, "data:,")
        assert "prefers-color-scheme: dark" in found.texts["style"][0]
        assert not re.search(r"url\(|@import|https?:", found.texts["style"][0] + found.texts["script"][0])
        assert not re.search(r"innerHTML|insertAdjacent|document\.write|eval", found.texts["script"][0])

    def test_marks_know_their_parents(self, graph: Graph) -> None:
        walk(graph, add_root(graph), "a", "b")
        found = parse(tree_svg.page(picture_of(graph), "x"))
        marks = [attributes for _, attributes in found.elements if attributes.get("class") == "mark"]
        assert [(mark["id"], mark.get("data-parent")) for mark in marks] == [("m0", None), ("m1", "0"), ("m2", "1")]


class TestVerb:
    def test_files_and_standard_output(self, line: CommandLine, tmp_path: Path) -> None:
        state = line.rollout("echo x > f", "echo y > f", "cat f")[1]["state"]
        files = {kind: tmp_path / f"tree.{kind}" for kind in ("svg", "html", "dot")}
        files["svg"].write_text("earlier, and longer than what comes\n" * 10_000)
        done = line("tree", *(word for kind, path in files.items() for word in (f"--{kind}", str(path))))
        assert done.stdout == ""
        assert [words.split(":")[0] for words in done.stderr.splitlines()] == [
            f"wrote {path}" for path in files.values()
        ]
        drawn = ElementTree.fromstring(files["svg"].read_text())
        assert sum(element.get("class") == "mark" for element in drawn.iter()) == 3
        for kind, path in files.items():
            assert state[:12] in path.read_text()
            assert line("tree", f"--{kind}", "-").stdout == path.read_text()
        part = line("tree", state[:12], "--svg", "-").stdout
        assert f"tvsnap tree state {state[:12]}" in part
        assert part.count('class="mark"') == 1

    def test_rewards_of_what_is_deeper_than_what_is_drawn(self, line: CommandLine) -> None:
        with open_cache(line.home, line.backend) as cache:
            for number, reward in enumerate((0.0, 1.0)):
                with cache.rollout("terminal", "task") as rollout:
                    for command in (f"echo {number} > f", "echo 2 > g"):
                        bash(rollout, command)
                        settle(rollout)
                rollout.record(reward)
        drawn = line("tree", "--svg", "-", "--depth", "1", "--colour", "reward").stdout
        assert drawn.count('class="mark"') == 3
        assert re.findall(r'class="edge (s\d)" stroke-width="[\d.]+" d="M-', drawn) == ["s0", "s4"]

    def test_mistakes(self, line: CommandLine, tmp_path: Path) -> None:
        missing = tmp_path / "none.svg"
        assert "nothing was recorded yet" in line.error("tree", "--svg", str(missing), status=3)
        assert not missing.exists()
        line.rollout("echo x > f")
        assert "--colour must be source or reward" in line.error("tree", "--svg", "-", "--colour", "x", status=2)
        assert "add --svg, --html or --dot" in line.error("tree", "--colour", "reward", status=2)
        assert "--json does not go together with --dot" in line.error("tree", "--dot", "-", "--json", status=2)
        assert "files of their own" in line.error("tree", "--dot", "-", "--svg", "-", status=2)
        assert "cannot write" in line.error("tree", "--svg", str(tmp_path), status=2)
        assert "no rollouts of task" in line.error("tree", "--svg", "-", "--task", "nope", status=3)
