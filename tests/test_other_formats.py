import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from keras_luong.files import read_lines
from keras_luong.text.corpus_files import ADVICE, find_table

PAGE = Path(__file__).parents[1] / "docs" / "corpus.md"


@pytest.mark.parametrize("name", ["a.CSV", "b.xlsx", "c.jsonl.gz", "d.tmx", "e.tar.gz"])
def test_what_is_no_text(name, tmp_path):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ValueError, match="no text file of sentences: .*.tsv"):
        find_table(tmp_path / name, "en", "de")


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
def test_the_command_for_json_lines_can_be_pasted(tmp_path):
    pairs = [{"en": 'a\t"b"\n c', "de": "ä"}, {"de": "\\d", "en": "e"}]
    lines = "".join(json.dumps(pair) + "\n" for pair in pairs)
    (tmp_path / "FILE").write_text(lines)
    command = re.search("jq .*", ADVICE["jsonl"])[0]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert list(read_lines(tmp_path / "train.tsv")) == ['a "b" c\tä', "e\t\\d"]


def test_the_pages_command_for_csv_can_be_pasted(tmp_path):
    (tmp_path / "corpus.csv").write_text('fr,en\n"a ""b""\nc",d\n')
    command = re.search(r"^python3 -c '.*?train.tsv$", PAGE.read_text(), re.M | re.S)[0]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert list(read_lines(tmp_path / "train.tsv")) == ["fr\ten", 'a "b" c\td']
