"""d3rlpy's HDF5 file, by d3rlpy's own writer; the manifest goes beside it, for what the file cannot say."""

from __future__ import annotations

from logforge.core import need, replaced_file
from logforge.exports.job import Job, Written
from logforge.shards import manifest_beside, to_mdp_dataset


def write(job: Job) -> list[Written]:
    """The file and its manifest."""
    h5py, shard = need("h5py", "train"), job.shard
    buffer = to_mdp_dataset(shard)
    with replaced_file(job.out) as fresh:
        with fresh.open("w+b") as stream:
            buffer.dump(stream)
        with h5py.File(fresh, "r+") as h5:
            h5.attrs["logforge_dataset"] = shard.manifest.hash
            h5.attrs["logforge_split"] = shard.split
    with replaced_file(manifest_beside(job.out)) as fresh:
        fresh.write_text(shard.manifest.to_json(), encoding="utf-8")
    return [Written(shard.split, buffer.transition_count, buffer.transition_count)]
