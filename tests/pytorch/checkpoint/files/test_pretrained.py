"""Models of transformers and peft: start from a folder, train, export, and read that again."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch
from determined.errors import InvalidExperimentException
from determined.pytorch import Batch, DataLoader
from tests.support.ranked import on_ranks

transformers: Any = pytest.importorskip("transformers")
peft: Any = pytest.importorskip("peft")

# peft asks transformers for an attribute by its older name.
pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")

VOCABULARY = 32


def tiny(kind: str) -> Any:
    if kind == "gpt2":  # ties the weights of its first and last layer
        return transformers.GPT2Config(
            n_layer=2, n_head=2, n_embd=8, vocab_size=VOCABULARY, n_positions=16,
            bos_token_id=0, eos_token_id=1,
        )  # fmt: skip
    return transformers.LlamaConfig(
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, hidden_size=8,
        intermediate_size=12, vocab_size=VOCABULARY, max_position_embeddings=16,
        bos_token_id=0, eos_token_id=1,
    )  # fmt: skip


def build(config: Any) -> Any:
    return transformers.AutoModelForCausalLM.from_config(config)


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    """Pretrained models in one file, and in several."""
    found = {}
    for kind in ("gpt2", "llama"):
        torch.manual_seed(5)
        model = build(tiny(kind))
        found[kind] = tmp_path / kind
        model.save_pretrained(found[kind])
        found[f"{kind}-sharded"] = tmp_path / f"{kind}-sharded"
        model.save_pretrained(found[f"{kind}-sharded"], max_shard_size="2KB")
        assert (found[f"{kind}-sharded"] / "model.safetensors.index.json").exists()
    return found


class TunedTrial(pytorch.PyTorchTrial):
    """Tunes a pretrained model, whole or by an adapter, beside a frozen reference."""

    def __init__(
        self,
        context: pytorch.PyTorchTrialContext,
        folder: str,
        parallel: str = "ddp",
        adapter: bool = False,
    ) -> None:
        self.context = context
        config = transformers.AutoConfig.from_pretrained(folder)
        with pytorch.empty_weights():
            model = build(config)
        assert all(p.is_meta for p in model.parameters())
        if adapter:
            torch.manual_seed(3)
            model = transformers.AutoModelForCausalLM.from_pretrained(folder)
            lora = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], lora_dropout=0.0)
            model = peft.get_peft_model(model, lora)
            self.model: Any = context.wrap_model(model, parallel=parallel)
        else:
            self.model = context.wrap_model(model, parallel=parallel, pretrained=folder)
        reference = transformers.AutoModelForCausalLM.from_pretrained(folder)
        self.reference = context.wrap_model(reference.requires_grad_(False).eval())
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = context.wrap_optimizer(torch.optim.AdamW(trained, lr=0.05))
        self.modes: list[bool] = []

    def build_training_data_loader(self) -> DataLoader:
        tokens = torch.randint(VOCABULARY, (24, 9), generator=torch.Generator().manual_seed(2))
        return DataLoader(TensorDataset(tokens), 4)

    def build_validation_data_loader(self) -> DataLoader:
        return self.build_training_data_loader()

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.modes += [self.model.training, self.reference.training]
        logits = self.model(input_ids=batch[0]).logits
        with torch.no_grad():
            wanted = self.reference(input_ids=batch[0]).logits
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), batch[0][:, 1:].flatten())
        loss = loss + 0.1 * (logits - wanted).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"loss": self.model(input_ids=batch[0], labels=batch[0]).loss}


def tune(storage: Path, batches: int = 4, **options: Any) -> tuple[TunedTrial, str]:
    with pytorch.init(
        seed=1, checkpoint_storage=storage, run_id="tuned", save_frozen="once",
        enable_tensorboard_logging=False,
    ) as context:  # fmt: skip
        trial = TunedTrial(context, **options)
        trainer = pytorch.Trainer(trial, context)
        trainer.fit(
            max_length=Batch(batches),
            checkpoint_period=Batch(2),
            checkpoint_policy="all",
            latest_checkpoint="latest",
        )
    assert trainer.latest_checkpoint is not None
    return trial, trainer.latest_checkpoint


def logits_of(model: Any) -> torch.Tensor:
    model.eval()
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=torch.arange(8)[None]).logits
    return found


@pytest.mark.parametrize("kind", ["gpt2", "llama-sharded"])
def test_a_folder_is_the_start_and_an_export_is_the_end(
    kind: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    with pytorch.init(seed=0, enable_tensorboard_logging=False) as context:
        trial = TunedTrial(context, str(folders[kind]))
        pretrained = transformers.AutoModelForCausalLM.from_pretrained(folders[kind])
        assert torch.equal(logits_of(trial.model), logits_of(pretrained))
    trial, checkpoint = tune(tmp_path / "storage", folder=str(folders[kind]))
    assert trial.modes == [True, False] * 4
    exported = pytorch.export(
        checkpoint, tmp_path / "out", trial_class=TunedTrial,
        trial_kwargs={"folder": str(folders[kind])},
    )  # fmt: skip
    again = transformers.AutoModelForCausalLM.from_pretrained(exported)
    assert torch.equal(logits_of(again), logits_of(trial.model))
    from safetensors import safe_open

    with safe_open(exported / "model.safetensors", "pt") as opened:
        assert opened.metadata()["format"] == "pt"
        names = set(opened.keys())
    assert ("lm_head.weight" in names) == (not trial.model.config.tie_word_embeddings)
    assert json.loads((exported / "config.json").read_text())["architectures"]


def test_an_adapter_is_exported_as_such_or_merged_and_resumes_exactly(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    options = {"folder": str(folders["llama"]), "adapter": True}
    tune(tmp_path / "cut", 2, **options)
    cut, checkpoint = tune(tmp_path / "cut", 4, **options)
    whole, _ = tune(tmp_path / "whole", 4, **options)
    for ours, unbroken in zip(cut.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(ours, unbroken)
    frozen = {
        file.stat().st_ino for file in (tmp_path / "cut").glob("*/frozen/*") if file.is_file()
    }
    checkpoints = list((tmp_path / "cut").glob("*/state_dict.pth"))
    links = list((tmp_path / "cut").glob("*/frozen/*"))
    assert len(checkpoints) >= 2
    assert len(frozen) < len(links)  # shared by the checkpoints, the reference included
    kwargs: dict[str, Any] = {"trial_class": TunedTrial, "trial_kwargs": options}
    adapter = pytorch.export(checkpoint, tmp_path / "adapter", **kwargs)
    assert (adapter / "adapter_model.safetensors").exists()
    assert not (adapter / "model.safetensors").exists()
    base = transformers.AutoModelForCausalLM.from_pretrained(folders["llama"])
    wanted = logits_of(cut.model)
    assert not torch.allclose(wanted, logits_of(base), atol=1e-3)
    loaded = peft.PeftModel.from_pretrained(copy.deepcopy(base), adapter)
    assert torch.equal(logits_of(loaded), wanted)
    merged = pytorch.export(checkpoint, tmp_path / "merged", merge=True, **kwargs)
    plain = transformers.AutoModelForCausalLM.from_pretrained(merged)
    torch.testing.assert_close(logits_of(plain), wanted, atol=1e-5, rtol=1e-5)


def _shard_and_gather(storage: Path, folder: str) -> dict[str, Any]:
    with pytorch.init(seed=0, enable_tensorboard_logging=False) as context:
        model: Any
        with pytorch.empty_weights():
            model = build(transformers.AutoConfig.from_pretrained(folder))
        model = context.wrap_model(model, parallel="fsdp", pretrained=folder)
        own = sum(p.to_local().numel() for p in model.parameters())
        whole = {name: p.full_tensor() for name, p in model.named_parameters()}
        return {
            "share": own / sum(p.numel() for p in whole.values()),
            "logits": logits_of(model).numpy(),
            "weights": {name: p.detach().numpy() for name, p in whole.items()},
        }


@pytest.mark.slow
@pytest.mark.multiprocess
@pytest.mark.parametrize("kind", ["gpt2-sharded", "llama"])
def test_ranks_read_their_shards_only(kind: str, folders: dict[str, Path], tmp_path: Path) -> None:
    wanted = transformers.AutoModelForCausalLM.from_pretrained(folders[kind])
    for found in on_ranks(3, _shard_and_gather, tmp_path, str(folders[kind])):
        assert found["share"] < 0.5
        for name, parameter in wanted.named_parameters():
            assert (found["weights"][name] == parameter.detach().numpy()).all(), name
        torch.testing.assert_close(torch.tensor(found["logits"]), logits_of(wanted))


def _tune_sharded(storage: Path, folder: str) -> str:
    return tune(storage, folder=folder, parallel="fsdp")[1]


@pytest.mark.slow
@pytest.mark.multiprocess
def test_a_sharded_run_is_exported_whole(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = str(folders["llama"])
    checkpoint = on_ranks(2, _tune_sharded, tmp_path / "storage", folder)[0]
    exported = pytorch.export(
        checkpoint, tmp_path / "out", trial_class=TunedTrial, trial_kwargs={"folder": folder}
    )
    loaded = transformers.AutoModelForCausalLM.from_pretrained(exported)
    trained = pytorch.load_trial_from_checkpoint_path(checkpoint, TunedTrial, {"folder": folder})
    assert torch.equal(logits_of(loaded), logits_of(trained.model))  # type: ignore[attr-defined]  # of this trial


def test_what_does_not_fit_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytorch.init(seed=0, enable_tensorboard_logging=False) as context:
        with pytest.raises(FileNotFoundError, match="`pretrained` must be a folder with"):
            context.wrap_model(nn.Linear(2, 2), pretrained=tmp_path)
        with pytest.raises(InvalidExperimentException, match=r"missing: bias, weight.*without a"):
            context.wrap_model(nn.Linear(2, 2), pretrained=folders["gpt2"])
        larger = tiny("llama")
        larger.hidden_size, larger.intermediate_size = 16, 24
        with pytest.raises(InvalidExperimentException, match=r"is \[.*\] .*of the model, but \["):
            context.wrap_model(build(larger), pretrained=folders["llama"])
    _, checkpoint = tune(tmp_path / "storage", 2, folder=str(folders["gpt2"]))
    kwargs: dict[str, Any] = {
        "trial_class": TunedTrial,
        "trial_kwargs": {"folder": str(folders["gpt2"])},
    }
    with pytest.raises(InvalidExperimentException, match="no adapter that it could merge"):
        pytorch.export(checkpoint, tmp_path / "out", merge=True, **kwargs)
    with pytest.raises(ValueError, match="`model` must be below 2"):
        pytorch.export(checkpoint, tmp_path / "out", model=2, **kwargs)
    with pytest.raises(FileExistsError, match="`folder` must not exist or be empty"):
        pytorch.export(checkpoint, tmp_path, **kwargs)
    with pytest.raises(ValueError, match="`format` must be"):
        pytorch.export(checkpoint, tmp_path / "out", format="onnx", **kwargs)
    plain = pytorch.export(checkpoint, tmp_path / "plain", format="safetensors", **kwargs)
    assert (plain / "model_0.safetensors").exists()
