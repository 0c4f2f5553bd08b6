import pathlib

import determined as det

info = det.get_cluster_info()
assert set(info.trial.hparams["training_arguments"]) == {"learning_rate", "kind"}
distributed = det.core.DistributedContext.from_torch_distributed()
mode = det.core.TensorboardMode.MANUAL
with det.core.init(distributed=distributed, tensorboard_mode=mode) as context:
    operations = context.searcher.operations()
    operation = next(operations)
    for step in (1, 2, 3):
        context.train.report_training_metrics(step, {"loss": 1 / step, "epoch": step / 3})
        weights = pathlib.Path("out", f"checkpoint-{step}", "model.bin")
        weights.parent.mkdir(parents=True)
        weights.write_bytes(bytes(step))
    uuid = context.checkpoint.upload(
        "out",
        metadata={"steps_completed": 3, "trial_id": info.trial.trial_id},
        shard=True,
        selector=lambda path: path.startswith("checkpoint-3/"),
    )
    context.checkpoint.download(uuid, "back")
    assert pathlib.Path("back/checkpoint-3/model.bin").read_bytes() == bytes(3)
    assert not pathlib.Path("back/checkpoint-1").exists()
    (context.train.get_tensorboard_path() / "events.out.tfevents.1.x").write_bytes(b"")
    context.train.upload_tensorboard_files(lambda _: True, lambda path, _: path)
    context.train.report_validation_metrics(3, {"eval_loss": 0.3})
    operation.report_progress(1)
    operation.report_completed(0.3)
    assert list(operations) == []
