from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from octavo.errors import DataError, OctavoWarning
from octavo.tasks.glue import GLUE
from octavo.tasks.glue_files import glue_samples, read_glue

NLI = "index\tsentence1\tsentence2\tlabel\n"
QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
MNLI = "index\tsentence1_parse\tsentence1\tsentence2\tlabel1\tgold_label\n"
STSB = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
FILES = {
    "glue/cola": (
        "CoLA/dev.tsv",
        'x\t1\t\tHe "left.\nx\t0\t*\tLeft he the.\n',
        ['He "left.', "Left he the."],
        [1, 0],
    ),
    "glue/sst2": ("SST-2/dev.tsv", "sentence\tlabel\ngood \t1\nbad \t0\n", ["good ", "bad "], [1, 0]),
    "glue/mrpc": (
        "MRPC/dev.tsv",
        'Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t1\t2\tHe said .\t" He said .\r\n',
        [("He said .", '" He said .')],
        [1],
    ),
    "glue/stsb": ("STS-B/dev.tsv", STSB + "0\tg\tf\ty\t1\tn\tn\tA.\tB.\t3.750\n", [("A.", "B.")], [3.75]),
    "glue/qqp": ("QQP/dev.tsv", QQP + "1\t2\t3\tWhy?\tHow?\t0\n", [("Why?", "How?")], [0]),
    "glue/mnli": (
        "MNLI/dev_matched.tsv",
        MNLI + "0\t(A)\tA.\tB.\tneutral\tcontradiction\n1\t(A)\tA.\tC.\tneutral\tentailment\n",
        [("A.", "B."), ("A.", "C.")],
        [2, 0],
    ),
    "glue/qnli": (
        "QNLI/dev.tsv",
        "index\tquestion\tsentence\tlabel\n0\tWho?\tHe.\tentailment\n",
        [("Who?", "He.")],
        [0],
    ),
    "glue/rte": ("RTE/dev.tsv", NLI + "0\tA.\tB.\tnot_entailment\n", [("A.", "B.")], [1]),
    "glue/wnli": ("WNLI/dev.tsv", NLI + "0\tA.\tB.\t1\n", [("A.", "B.")], [1]),
}


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("task", FILES)
def test_every_task_reads_its_own_layout(tmp_path: Path, task: str) -> None:
    name, text, texts, labels = FILES[task]
    path = write(tmp_path, name, text)
    examples = read_glue(task, tmp_path)
    assert list(examples.texts) == texts
    assert examples.labels.tolist() == labels
    assert examples.labels.dtype == (np.float64 if task == "glue/stsb" else np.int64)
    assert examples.source == str(path)
    assert examples.split == GLUE[task].default_split
    assert examples.partial
    assert examples.full == GLUE[task].split().examples


def test_the_split_can_be_chosen(tmp_path: Path) -> None:
    write(tmp_path, "MNLI/dev_mismatched.tsv", FILES["glue/mnli"][1])
    assert read_glue("glue/mnli", tmp_path, "dev_mismatched").full == 9832


def test_a_full_split_is_not_partial(tmp_path: Path) -> None:
    write(tmp_path, "WNLI/dev.tsv", NLI + "0\tA.\tB.\t1\n" * 71)
    assert not read_glue("glue/wnli", tmp_path).partial


def test_a_malformed_line_says_where_and_what(tmp_path: Path) -> None:
    write(tmp_path, "RTE/dev.tsv", NLI + "0\tA.\tB.\tentailment\n1\tA.\tentailment\n")
    message = r"RTE.dev\.tsv, line 3: expected 4 fields separated by tabs, found 3 in '1\\tA\.\\tentailment'"
    with pytest.raises(DataError, match=message):
        read_glue("glue/rte", tmp_path)


def test_cola_has_four_fields_and_no_header(tmp_path: Path) -> None:
    write(tmp_path, "CoLA/dev.tsv", "sentence\tlabel\n")
    with pytest.raises(DataError, match=r"dev\.tsv, line 1: expected 4 fields .*, found 2"):
        read_glue("glue/cola", tmp_path)


@pytest.mark.parametrize(
    ("task", "label", "allowed"),
    [
        ("glue/rte", "neutral", "allowed are entailment, not_entailment"),
        ("glue/wnli", "2", "allowed are 0, 1"),
        ("glue/stsb", "5.5", "give a number from 0 to 5"),
        ("glue/stsb", "high", "give a number from 0 to 5"),
        ("glue/stsb", "nan", "give a number from 0 to 5"),
    ],
)
def test_a_label_outside_the_task_is_refused(tmp_path: Path, task: str, label: str, allowed: str) -> None:
    name = FILES[task][0]
    header = STSB if task == "glue/stsb" else NLI
    row = ["x"] * (header.count("\t")) + [label]
    write(tmp_path, name, header + "\t".join(row) + "\n")
    with pytest.raises(DataError, match=rf"line 2: label '{label}' is outside {task}; {allowed}"):
        read_glue(task, tmp_path)


def test_a_missing_column_lists_the_header(tmp_path: Path) -> None:
    write(tmp_path, "RTE/dev.tsv", "index\tpremise\tsentence2\tlabel\n")
    with pytest.raises(DataError, match="line 1: no column 'sentence1'; the header names 'index', 'premise'"):
        read_glue("glue/rte", tmp_path)


def test_a_missing_file_says_what_is_there(tmp_path: Path) -> None:
    write(tmp_path, "RTE/train.tsv", NLI)
    with pytest.raises(
        DataError, match=rf"glue/rte needs .*dev\.tsv, .* {re.escape(str(tmp_path / 'RTE'))} holds train\.tsv"
    ):
        read_glue("glue/rte", tmp_path)


def test_a_missing_task_folder_says_what_is_there(tmp_path: Path) -> None:
    write(tmp_path, "CoLA/dev.tsv", "")
    with pytest.raises(DataError, match=r"holds CoLA\. Give the folder that holds RTE/dev\.tsv"):
        read_glue("glue/rte", tmp_path)


def test_data_must_be_a_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none is not a folder; give the folder that holds RTE/dev\.tsv"):
        read_glue("glue/rte", tmp_path / "none")


@pytest.mark.parametrize("text", [NLI, NLI + "\n"], ids=["header", "blank"])
def test_a_file_without_examples_is_refused(tmp_path: Path, text: str) -> None:
    write(tmp_path, "RTE/dev.tsv", text)
    with pytest.raises(DataError, match="holds no examples"):
        read_glue("glue/rte", tmp_path)


def test_an_empty_file_names_the_missing_column(tmp_path: Path) -> None:
    write(tmp_path, "RTE/dev.tsv", "")
    with pytest.raises(DataError, match="the header names nothing"):
        read_glue("glue/rte", tmp_path)


def test_the_known_broken_lines_of_qqp_are_left_out_with_a_warning(tmp_path: Path) -> None:
    good = "1\t2\t3\tWhy?\tHow?\t0\n"
    write(tmp_path, "QQP/train.tsv", QQP + good + '2\t3\t4\t"Cut\n"\tin two?\t1\n' + good)
    with pytest.warns(OctavoWarning, match=r"2 lines cut in two were left out \(lines 3, 4\)"):
        examples = read_glue("glue/qqp", tmp_path, "train")
    assert len(examples) == 2
    assert examples.skipped == 2


def test_more_broken_lines_than_qqp_has_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "QQP/dev.tsv", QQP + "cut\n" * 65)
    with pytest.raises(DataError, match="line 66: expected 6 fields"):
        read_glue("glue/qqp", tmp_path)


@pytest.mark.glue
@pytest.mark.parametrize("task", GLUE)
@pytest.mark.parametrize("split", ["train", None], ids=["train", "dev"])
def test_the_real_files_are_read(task: str, split: str | None) -> None:
    folder = Path(os.environ["OCTAVO_GLUE"])
    if not (folder / GLUE[task].folder).is_dir():
        pytest.skip(f"{GLUE[task].folder} is not there")
    examples = read_glue(task, folder, split)
    assert examples.partial == (len(examples) < examples.full)
    assert examples.skipped == 0 or task == "glue/qqp"
    assert len(set(examples.labels.tolist())) >= GLUE[task].outputs


def test_samples_of_the_tasks_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "SST-2").mkdir()
    (tmp_path / "SST-2" / "dev.tsv").write_text("sentence\tlabel\na\t1\nb\t0\nc\t1\n", encoding="utf-8")
    assert glue_samples(tmp_path, 2) == {"SST-2": ("a", "b")}


def test_a_folder_without_tasks_has_no_samples(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds none of GLUE's task folders"):
        glue_samples(tmp_path, 2)
