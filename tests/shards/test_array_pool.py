import threading

import numpy as np
import torch

from logforge.shards.array_pool import Spare


def test_an_array_that_nobody_holds_is_given_again():
    spare = Spare()
    first = spare.empty((4, 3), np.float32)
    place = first.ctypes.data
    assert (first.shape, first.dtype) == ((4, 3), np.float32)
    assert spare.empty((4, 3), np.float32).ctypes.data != place
    del first
    assert place in {spare.empty((4, 3), np.float32).ctypes.data for _ in range(3)}
    assert spare.empty((4, 3), np.float64).dtype == np.float64
    assert spare.empty((3, 4), np.float32).shape == (3, 4)


def test_a_view_and_a_tensor_hold_their_array():
    spare = Spare()
    view = spare.empty((4,), np.float32)[1:][:2]
    tensor = torch.from_numpy(spare.empty((4,), np.float32))[2:]
    view[:], tensor[:] = 7, 8
    for _ in range(20):
        spare.empty((4,), np.float32)[:] = 0
    assert (view == 7).all()
    assert (tensor == 8).all()


def test_threads_share_no_array():
    spare, places = Spare(), []
    spare.empty((9,), np.float32)
    thread = threading.Thread(target=lambda: places.append(spare.empty((9,), np.float32).ctypes.data))
    thread.start()
    thread.join()
    assert spare.empty((9,), np.float32).ctypes.data not in places


def test_shapes_that_are_no_longer_asked_for_are_let_go():
    spare = Spare()
    for rows in range(200):
        spare.empty((rows,), np.float32)
    assert len(spare._arrays) < 50


def test_many_that_are_held_are_all_different():
    spare = Spare()
    held = [spare.empty((2,), np.int64) for _ in range(40)]
    assert len({array.ctypes.data for array in held}) == 40
