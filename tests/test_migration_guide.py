"""docs/from_tfa_seq2seq.md: every block has run, and every name is in it.

The blocks that use TensorFlow Addons ran in an environment that has it
(`fixtures/tfa/run_guide.py`). Ours run here, on the checkpoint that those wrote.
"""

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest

from keras_luong.cli.command_line import parse

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "tests" / "fixtures" / "tfa"
GUIDE = (ROOT / "docs" / "from_tfa_seq2seq.md").read_text("utf-8")
THEIRS = re.findall(r'```python title="TensorFlow Addons"\n(.*?)```', GUIDE, re.S)
OURS = re.findall(r"```python\n(.*?)```", GUIDE, re.S)
PRINTED = re.compile(r"^ *print\(.*\)  # (.*)$", re.M)

NAMES = (
    "AttentionWrapper AttentionWrapperState LuongAttention BahdanauAttention "
    "LuongMonotonicAttention BahdanauMonotonicAttention BasicDecoder BeamSearchDecoder "
    "dynamic_decode tile_batch gather_tree hardmax TrainingSampler "
    "ScheduledEmbeddingTrainingSampler ScheduledOutputTrainingSampler "
    "GreedyEmbeddingSampler SampleEmbeddingSampler InferenceSampler SequenceLoss "
    "sequence_loss"
).split()


@pytest.mark.slow
@pytest.mark.tensorflow
def test_our_blocks_print_what_they_say(tmp_path, monkeypatch, capsys):
    (tmp_path / "addons").mkdir()
    for file in FIXTURES.glob("translator.*"):
        shutil.copy(file, tmp_path / "addons")
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "guide"}
    for block in OURS:
        exec(compile(block, "block", "exec"), namespace)
        lines = capsys.readouterr().out.splitlines()
        assert [x for x in PRINTED.findall(block) if x not in lines] == [], lines


def test_the_blocks_of_addons_are_those_that_ran():
    """Where they have changed: run fixtures/tfa/run_guide.py again."""
    ran = json.loads((FIXTURES / "guide_blocks.json").read_text("utf-8"))
    assert [hashlib.sha256(block.encode()).hexdigest() for block in THEIRS] == ran


def test_every_name_is_in_the_table_and_in_code():
    sections = re.split(r"^## ", GUIDE, flags=re.M)
    titles = [x.splitlines()[0].lower().replace(" ", "-") for x in sections]
    for name in NAMES:
        (link,) = re.findall(rf"^\| `{name}` \|.*\]\(#(.*)\) \|$", GUIDE, re.M)
        section = sections[titles.index(link)]
        # Nobody makes a state by its name: a decoder does.
        is_state = name == "AttentionWrapperState"
        used = f"# {name}" if is_state else f"tfa.seq2seq.{name}("
        assert any(used in block and block in section for block in THEIRS), name


def test_both_sides_print_the_same():
    """States, logits, what searches find, and losses."""
    same = {"6.959 449.0", "[3 4 5 2] [4 3]", "0.0041", "(2, 4, 10) 2"}
    for side in (THEIRS, OURS):
        assert same <= {y for x in side for y in PRINTED.findall(x)}


OTHERS = (ROOT / "docs" / "coming_from_others.md").read_text("utf-8")


def test_options_of_ours_are_there(capsys):
    """In docs/coming_from_others.md."""
    for command in ("train", "translate"):
        parse([command, "--help=all"])
    known = set(re.findall(r"--\w+", capsys.readouterr().out))
    named = set(re.findall(r"`(--\w+)", OTHERS)) | set(re.findall(r" (--\w+)", OTHERS))
    assert len(named) > 40
    assert named <= known
