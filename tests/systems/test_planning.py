import pytest

from megalabel.systems import planning


@pytest.mark.parametrize(
    ("limit", "left"),
    [
        (str(6 << 20), 3 << 20),  # 4 MiB are used, and 1 MiB of that is files
        (str(1 << 20), 0),
        ("max", None),
        (str(1 << 60), None),
        (None, None),
    ],
)
def test_a_containers_limit_counts(tmp_path, monkeypatch, limit, left):
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit + "\n")
        (tmp_path / "memory.current").write_text(f"{4 << 20}\n")
        (tmp_path / "memory.stat").write_text(f"anon 5\ninactive_file {1 << 20}\n")
    monkeypatch.setattr(planning, "_CONTAINER", tmp_path)
    monkeypatch.setattr(planning, "memory_in_use", lambda: 1000)
    available = planning.memory_available() - 1000
    assert available == left if left is not None else available > 64 << 20
