"""Each setting is told with its evidence, and with advice where it had better be changed; CUDA by substitution."""

import pytest
import torch

from denizen.perf import ProfileReport, environment
from denizen.perf import _environment as facts
from denizen.perf import _environment as step_facts
from denizen.perf._environment import CHANGE, NOTE, OK
from denizen.perf._profile.measure import Kernel, Operator
from denizen.tools import set_fast_defaults


class Card:
    name, total_memory, major, minor = "NVIDIA H100", 80 << 30, 9, 0


@pytest.fixture
def card(monkeypatch):
    """A CUDA device, as far as settings go."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: Card)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (Card.major, Card.minor))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91002)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(facts, "driver_version", lambda: "580.65")
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "CUDA_LAUNCH_BLOCKING"):
        monkeypatch.delenv(name, raising=False)


def test_with_a_card(card):
    found = environment()
    assert found["CUDA"].value == "1 device, driver 580.65"
    assert found["device 0"].value == "NVIDIA H100, 80 GiB, compute capability 9.0"
    assert found["TF32 in matrix products"].level == CHANGE
    assert "set_fast_defaults" in found["TF32 in matrix products"].advice
    assert found["cuDNN"].level == OK
    assert found["cuDNN trials"].level == NOTE
    assert found["allocator"].value == "native"
    assert "expandable_segments" in found["allocator"].advice


def test_the_advice_is_what_is_missing(card):
    with set_fast_defaults():
        assert {fact.level for fact in (*facts.tf32(), *facts.cudnn())} == {OK}
    assert CHANGE in {fact.level for fact in facts.tf32()}


def test_cards_without_tensor_cores_need_no_tf32(card, monkeypatch):
    monkeypatch.setattr(Card, "major", 7)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: False)
    assert {fact.level for fact in facts.tf32()} == {OK}
    assert "Amp" in facts.bf16().advice
    assert environment()["device 0"].level == NOTE


def test_amd_is_left_alone(card, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert {fact.level for fact in (*facts.tf32(), *facts.cudnn())} == {OK}
    assert "ROCm 7.0" in environment()["versions"].value


def test_a_cpu_build_beside_a_driver(monkeypatch):
    monkeypatch.setattr(facts, "driver_version", lambda: "580.65")
    monkeypatch.setattr(torch.version, "cuda", None)
    found = facts.cuda()
    assert found.level == CHANGE
    assert "built without CUDA" in found.advice


def test_devices_that_are_hidden(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = facts.cuda()
    assert found.level == CHANGE
    assert "CUDA_VISIBLE_DEVICES" in found.advice


def test_a_driver_that_is_too_old(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(facts, "driver_version", lambda: "450.80")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert "too old" in facts.cuda().advice


def test_allocator_settings_are_shown(card, monkeypatch):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    found = environment()["allocator"]
    assert "expandable_segments" in found.evidence
    assert found.advice == ""


def test_attention_kernels(card):
    (found,) = facts.attention()
    assert (found.level, found.value.split(", ")[0]) == (OK, "flash")
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        (found,) = facts.attention()
    assert (found.level, found.value) == (NOTE, "flash")
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        (found,) = facts.attention()
    assert "enable_flash_sdp" in found.advice


def test_several_devices_of_which_one_is_used(card, monkeypatch):
    assert list(facts.processes()) == []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    (found,) = facts.processes()
    assert "--nproc-per-node 4" in found.advice
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    (found,) = facts.processes()
    assert found.level == OK


def test_no_compiler(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(facts.shutil, "which", lambda name: None)
    assert facts.compiler().value == "not usable"


def test_compilation_on_cuda_needs_triton(card, monkeypatch):
    monkeypatch.setattr(facts, "_version", lambda package: "")
    assert facts.compiler().level == CHANGE


def test_more_threads_than_cores(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    monkeypatch.setattr(facts, "available_cores", lambda: 8)
    monkeypatch.setattr(facts, "quota", lambda: 4.0)
    found = facts.threads()
    assert found.level == CHANGE
    assert "set_num_threads(4)" in found.advice


def test_small_shared_memory(monkeypatch):
    size = type("Size", (), {"f_blocks": 1 << 14, "f_frsize": 4096})
    monkeypatch.setattr(facts.os, "statvfs", lambda path: size)
    (found,) = facts.shared_memory()
    assert found.level == CHANGE
    assert "--shm-size" in found.advice


# --- of a step --------------------------------------------------------------------------------------------------------


def report(operators=(), kernels=(), device="cuda:0 H100"):
    return ProfileReport(
        start=0,
        window=0.1,
        busy=0.05,
        copies=0.0,
        exposed_copies=0.0,
        kernels=len(kernels),
        idle=[],
        gaps=[],
        operators=list(operators),
        device_ops=list(kernels),
        queue=None,
        memory=None,
        device=device,
        steps=1,
        step_times=[0.1],
        plain_times=[0.1],
        sampled={},
        trace=None,
    )


def test_a_step_that_leaves_the_gpu_alone(card):
    found = step_facts.used(report([Operator("aten::mm", 7, 0.1, 0.0)], device="cpu"))
    assert found.level == CHANGE
    assert "7 operators" in found.evidence


def test_a_step_on_the_gpu(card):
    found = step_facts.used(report(kernels=[Kernel("gemm", 3, 0.05)]))
    assert (found.value, found.level) == ("yes", OK)
    assert "busy 50%" in found.evidence


@pytest.mark.parametrize(
    ("kernel", "value"),
    [
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128", "TF32"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4>", "TF32"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64", "float32 without tensor cores"),
        ("ampere_sgemm_128x64_tn", "float32 without tensor cores"),
    ],
)
def test_kernels_tell_how_products_are_done(kernel, value):
    (found,) = step_facts.products(report(kernels=[Kernel(kernel, 3, 0.05)]))
    assert found.value == value


def test_nothing_is_said_of_other_kernels():
    assert list(step_facts.products(report(kernels=[Kernel("sm90_bf16_gemm", 3, 0.1), Kernel("add", 1, 0.1)]))) == []


def test_graphs_that_run_no_more():
    found = step_facts.compiled(report(), graphs=8, first=1.0, later=0.01)
    assert found.level == CHANGE


def test_torch_without_byte_code(monkeypatch, tmp_path):
    assert list(facts.byte_code()) == []
    monkeypatch.setattr(torch, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.setattr(facts.sys, "dont_write_bytecode", True)
    (found,) = facts.byte_code()
    assert found.level == NOTE
    assert "PYTHONDONTWRITEBYTECODE" in found.evidence
    assert f"compileall -q {tmp_path}" in found.advice
