from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from logforge.schemas.errors import InputError, Mismatch, UsageError
from logforge.texts.pca import Pca
from logforge.texts.pca import fit_pca as fit_weighed


def made_vectors(
    rows: int = 40, dim: int = 12, seed: int = 0
) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    chance = np.random.default_rng(seed)
    return (chance.normal(size=(rows, dim)) * np.linspace(3, 0.1, dim) + 1).astype(np.float32)


def fit_pca(vectors: np.ndarray, size: int) -> Pca:
    """Every row counts once."""
    return fit_weighed(vectors, np.ones(len(vectors)), size)


def test_the_reduction_centres_and_keeps_the_largest_variance() -> None:
    vectors = made_vectors()
    pca = fit_pca(vectors, 4)
    low = pca.apply(vectors)
    assert low.shape == (40, 4)
    assert low.dtype == np.float32
    np.testing.assert_allclose(low.mean(axis=0), 0, atol=1e-5)
    values = np.linalg.eigvalsh(np.cov(vectors.T.astype(np.float64)))[::-1]
    np.testing.assert_allclose(low.var(axis=0, ddof=1), values[:4], rtol=1e-4)
    np.testing.assert_allclose(pca.explained, values[:4] / values.sum(), rtol=1e-4)
    np.testing.assert_allclose(pca.basis.T @ pca.basis, np.eye(4), atol=1e-5)


def test_a_weight_counts_as_so_many_rows() -> None:
    vectors = made_vectors()
    weights = np.arange(1, 41)
    weighed, repeated = (
        fit_weighed(vectors, weights.astype(np.float64), 4),
        fit_pca(vectors.repeat(weights, axis=0), 4),
    )
    for name in ("mean", "basis", "explained"):
        np.testing.assert_allclose(getattr(weighed, name), getattr(repeated, name), atol=1e-5)
    assert np.abs(weighed.mean - fit_pca(vectors, 4).mean).max() > 0.01


@pytest.mark.parametrize(
    ("rows", "dim", "size", "expected"), [(40, 12, 5, 5), (3, 12, 5, 2), (40, 4, 5, 4), (2, 3, 1, 1)]
)
def test_the_size_is_what_the_vectors_allow(rows: int, dim: int, size: int, expected: int) -> None:
    pca = fit_pca(made_vectors(rows, dim), size)
    assert (pca.dim, pca.size) == (dim, expected)
    assert pca.apply(made_vectors(rows, dim)).shape == (rows, expected)


def test_a_row_is_bit_equal_whatever_stands_beside_it() -> None:
    vectors = made_vectors(300, 384)
    pca = fit_pca(vectors, 33)
    whole = pca.apply(vectors)
    for start, stop in ((0, 1), (7, 8), (3, 130), (299, 300)):
        assert pca.apply(vectors[start:stop]).tobytes() == whole[start:stop].tobytes()
    np.testing.assert_allclose(whole, (vectors - pca.mean) @ pca.basis, atol=1e-4)


def test_no_rows_reduce_to_no_rows() -> None:
    assert fit_pca(made_vectors(), 4).apply(np.zeros((0, 12), np.float32)).shape == (0, 4)


def test_equal_vectors_leave_finite_zeros() -> None:
    vectors = np.ones((5, 3), np.float32)
    pca = fit_pca(vectors, 2)
    assert np.isfinite(pca.apply(vectors)).all()
    assert pca.explained.tolist() == [0, 0]


def test_equal_fits_give_equal_files_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = fit_pca(made_vectors(), 4)
    one.save(tmp_path / "one.npz")
    monkeypatch.setattr(time, "time", lambda: 2_000_000_000.0)
    two = fit_pca(made_vectors(), 4)
    two.save(tmp_path / "two.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes() == one.to_bytes()
    assert one.hash == two.hash
    assert fit_pca(made_vectors(seed=1), 4).hash != one.hash


def test_a_saved_reduction_is_read_back(tmp_path: Path) -> None:
    pca = fit_pca(made_vectors(), 4)
    pca.save(tmp_path / "pca.npz")
    read = Pca.load(tmp_path / "pca.npz")
    assert read.hash == pca.hash
    assert read.apply(made_vectors(seed=2)).tobytes() == pca.apply(made_vectors(seed=2)).tobytes()


def test_files_that_are_no_reduction_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "pca.npz"
    with pytest.raises(InputError, match="not a saved PCA"):
        Pca.load(path)
    path.write_bytes(b"nothing")
    with pytest.raises(InputError, match="not a saved PCA"):
        Pca.load(path)
    np.savez(path, mean=np.zeros(3))
    with pytest.raises(InputError, match="not a saved PCA"):
        Pca.load(path)
    np.savez(path, mean=np.zeros(3), basis=np.zeros((2, 2)), explained=np.zeros(2))
    with pytest.raises(InputError, match="shapes"):
        Pca.load(path)
    np.savez(path, mean=np.array([object()]), basis=np.zeros((1, 1)), explained=np.zeros(1))
    with pytest.raises(InputError, match="not a saved PCA"):
        Pca.load(path)


def test_too_little_to_fit_on_and_wrong_sizes_are_refused() -> None:
    with pytest.raises(UsageError, match="text size 0"):
        fit_pca(made_vectors(), 0)
    with pytest.raises(Mismatch, match="expected 12, found 5"):
        fit_pca(made_vectors(), 4).apply(made_vectors(3, 5))


@pytest.mark.parametrize("rows", [0, 1])
def test_one_text_or_none_gives_a_reduction_that_says_nothing(rows: int) -> None:
    pca = fit_pca(made_vectors(rows), 4)
    assert pca.size == 1
    assert not pca.apply(made_vectors(3)).any()
