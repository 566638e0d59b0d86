"""scripts/checkpoints.py as a user runs it."""

from pathlib import Path


def test_a_written_page_is_up_to_date_and_a_changed_one_is_not(run_script, tmp_path: Path) -> None:
    page = tmp_path / "checkpoints.md"
    assert run_script("checkpoints.py", "--write", "--page", page).returncode == 0
    printed = run_script("checkpoints.py")
    assert (printed.returncode, printed.stdout) == (0, page.read_text(encoding="utf-8"))
    checked = run_script("checkpoints.py", "--check", "--page", page)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")

    page.write_text(printed.stdout.replace("| yolox-nano | ", "| yolox-tiny | ", 1))
    checked = run_script("checkpoints.py", "--check", "--page", page)
    assert checked.returncode == 1
    assert "-| yolox-tiny | " in checked.stdout
    assert "+| yolox-nano | " in checked.stdout
    assert checked.stderr.endswith("run scripts/checkpoints.py --write\n")


def test_a_page_that_is_not_there_is_one_sentence(run_script, tmp_path: Path) -> None:
    checked = run_script("checkpoints.py", "--check", "--page", tmp_path / "absent.md")
    assert checked.returncode == 1
    assert checked.stderr.startswith("checkpoints: ")
    assert checked.stderr.count("\n") == 1
