// What would fit which machine, without a device, and the table of models.
#include "megatrain/advice/plan_inputs.h"
#include "megatrain/plan/estimate.h"

#include <ctime>
#include <utility>

#include "megatrain/advice/what_fits.h"
#include "megatrain/base/units.h"
#include "megatrain/model/model.h"
#include "megatrain/model/model_source.h"
#include "megatrain/ops/attention_cut.h"
#include "megatrain/train/planned_machine.h"
#include "tests/advice/presets.h"
#include "tests/support/fixtures.h"
#include "tests/support/plan_changes.h"

namespace megatrain {

namespace {

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace

TEST(PlanInputs, CountsTheParametersThatAreTrainedWithoutTheirPadding) {
  TrainConfig config = step_of(1, 1);
  const PlannedMachine planned = machine_with("h200", 500 * kGiB);
  const Workload all = plan_inputs(config, preset("gpt-oss-20b"), planned, {}, true).workload;
  EXPECT_EQ(all.trained_parameters, all.parameters);
  config.train_only = {"*.self_attn.sinks"};  // 64 heads in each of 24 layers; a tensor is padded to 128 elements
  EXPECT_EQ(plan_inputs(config, preset("gpt-oss-20b"), planned, {}, true).workload.trained_parameters, 24 * 64);
}

// Attention with a window is not cut into tiles, unless it has its own way of doing so.
TEST(PlanInputs, KnowsWhereLongAttentionIsNotCut) {
  const PlannedMachine planned = machine_with("h200", 500 * kGiB);
  const auto whole = [&](const char* name, int64_t seq_len) {
    return plan_inputs(step_of(1, 1, seq_len), preset(name), planned, {}, true).workload.whole_attention;
  };
  EXPECT_FALSE(whole("gpt-oss-20b", 8192));
  EXPECT_FALSE(whole("qwen2.5-7b", 120 * 1024));
  const ModelConfig model = preset("gpt-oss-20b");
  const AttentionShape shape{.tokens = 120 * 1024,
                             .heads = model.heads,
                             .kv_heads = model.kv_heads,
                             .head_dim = model.head_dim,
                             .window = 128};
  EXPECT_EQ(whole("gpt-oss-20b", 120 * 1024), !attention_cut(shape, 1, 120 * 1024).tiled(120 * 1024));
}

TEST(PlanInputs, AMachineThatIsNotThereHasTheMemoryOfItsProfileLessWhatIsLeftFree) {
  const PlannedMachine planned = machine_from_profile(named_machine("4090"));
  EXPECT_EQ(planned.budgets.gpu_bytes, 23 * kGiB - 512 * kMiB);
  EXPECT_EQ(planned.budgets.host_bytes, host_budget(64 * kGiB));
  EXPECT_LT(planned.budgets.host_bytes, 62 * kGiB);
  EXPECT_EQ(host_budget(kGiB), 0);
  const PlanInputs p = plan_inputs(step_of(8, 8), preset("qwen2.5-3b"), planned);
  EXPECT_GT(p.workload.device_base_bytes, 0);
  EXPECT_GT(p.workload.scratch_bytes, 0);
  const auto found = fit(p);
  ASSERT_TRUE(found);
  EXPECT_LE(found->need.hbm_bytes(), planned.budgets.gpu_bytes);
  EXPECT_LE(found->need.host_bytes(), planned.budgets.host_bytes);
}

TEST(PlanInputs, SamplesHaveALineOfTheirOwnThatFollowsPromptsAndAnswers) {
  const PlannedMachine planned = machine_from_profile(named_machine("h200"));
  for (const char* name : {"qwen2.5-7b", "gpt-oss-20b"}) {
    const ModelConfig model = preset(name);
    const auto workload = [&](const TrainConfig::Sample& sample, int64_t prompt_tokens = 0) {
      TrainConfig config = step_of(8, 8);
      config.sample = sample;
      PlannedMachine counted = planned;
      counted.prompt_tokens = prompt_tokens;
      return plan_inputs_of_group(config, model, counted, {}, 0).workload;
    };
    const Workload none = workload({}), one = workload({.every = 1, .prompts = {"a"}});
    EXPECT_EQ(none.generation_bytes, 0);
    EXPECT_GT(one.generation_bytes, 2 * one.weight_bytes(1)) << "the weights of two blocks";
    for (const Workload* w : {&none, &one}) {
      EXPECT_EQ(w->device_base_bytes, planned.device_base_bytes);
      EXPECT_EQ(w->scratch_bytes, none.scratch_bytes);
    }
    const auto bytes = [&](std::vector<std::string> prompts, int64_t max_tokens, int64_t counted = 0) {
      return workload({.every = 1, .prompts = std::move(prompts), .max_tokens = max_tokens}, counted).generation_bytes;
    };
    EXPECT_GT(bytes({std::string(2000, 'a')}, 128), one.generation_bytes);
    EXPECT_GT(bytes({"a", "b"}, 128), one.generation_bytes);
    EXPECT_GT(bytes({"a"}, 4096), one.generation_bytes);
    EXPECT_LT(bytes({"a"}, 128, 10), one.generation_bytes) << "a tokenizer has counted them";
    EXPECT_EQ(bytes(std::vector<std::string>(8, "a"), 128), bytes(std::vector<std::string>(20, "a"), 128));
  }
}

TEST(PlanInputs, SamplesTakeNoMoreThanWhatActivationsDoNotLend) {
  const PlannedMachine planned = machine_from_profile(named_machine("4090"));
  TrainConfig config = step_of(8, 8);
  const auto plain = fit(plan_inputs(config, preset("qwen2.5-3b"), planned));
  config.sample = {.every = 1, .prompts = std::vector<std::string>(8, "What is the answer?")};
  const PlanInputs p = plan_inputs(config, preset("qwen2.5-3b"), planned);
  const auto sampling = fit(p);
  ASSERT_TRUE(plain && sampling);
  EXPECT_LE(sampling->need.hbm_bytes(), planned.budgets.gpu_bytes);
  EXPECT_LT(sampling->need.bytes_of(ResourceKind::generation), p.workload.generation_bytes / 4);
}

TEST(PlanInputs, TheScratchOfADeviceThatIsNotThereGrowsWithTheSquareOfASequenceUpToATile) {
  const PlannedMachine planned = machine_from_profile(named_machine("h200"));
  const auto scratch = [&](int64_t seq_len) {
    return plan_inputs(step_of(1, 1, seq_len), preset("qwen2.5-7b"), planned).workload.scratch_bytes;
  };
  EXPECT_EQ(scratch(1024), scratch(2048));
  EXPECT_GE(scratch(16384), 7 * 16384 * 16384 * int64_t{2});  // seven heads share a key head
  EXPECT_NEAR(static_cast<double>(scratch(16384)) / static_cast<double>(scratch(8192)), 4, 0.1);
  // beyond that, only the fp32 sums of one head's keys and values grow
  EXPECT_EQ(scratch(524288) - scratch(262144), 262144 * 2 * 128 * 4);
}

TEST(PlanInputs, LayersWithALongWindowTakeTheScratchOfWholeDocuments) {
  const PlannedMachine planned = machine_from_profile(named_machine("h200"));
  const auto scratch = [&](const ModelConfig& model) {
    return plan_inputs(step_of(1, 1, 32768), model, planned).workload.scratch_bytes;
  };
  // eight heads share a key head; every second layer of the first two has a window
  ModelConfig longer = preset("gpt-oss-20b");
  for (int64_t& window : longer.window) window = window > 0 ? 12000 : 0;
  EXPECT_GE(scratch(longer), int64_t{16} * 32768 * 32768);
  EXPECT_LT(scratch(preset("gpt-oss-20b")), int64_t{8} * 32768 * 32768);
  EXPECT_LT(scratch(preset("qwen3-30b-a3b")), int64_t{8} * 32768 * 32768);
}

TEST(PlanInputs, OfRaggedDataAShorterDocumentMayTakeMoreScratch) {
  TrainConfig config = step_of(1, 1, 20000);
  config.data.train.emplace_back();
  const PlannedMachine planned = machine_from_profile(named_machine("h200"));
  const int64_t whole = plan_inputs(step_of(1, 1, 16384), preset("qwen2.5-7b"), planned).workload.scratch_bytes;
  EXPECT_GE(plan_inputs(config, preset("qwen2.5-7b"), planned).workload.scratch_bytes, whole);
}

TEST(PlanInputs, AModelsOwnFlopsAreItsProductsAndWhatATokenSees) {
  const ModelConfig c = preset("qwen2.5-7b");
  const Workload w = plan_inputs(step_of(4, 2, 1024), c, machine_from_profile(named_machine("h200"))).workload;
  const double matrices =
      static_cast<double>(c.layers * (c.hidden * (c.qkv_dim() + c.q_dim()) + 3 * c.hidden * c.ff) + c.hidden * c.vocab);
  const double seen = static_cast<double>(c.layers * c.q_dim()) * 1025 / 2;  // matmuls of q and k, and of p and v
  EXPECT_NEAR(w.model_flops(), 6 * matrices + 3.5 * 4 * seen, 1e-9 * w.model_flops());
}

// A token sees half of its sequence on average. Backward takes 2.5 times forward; recomputing takes one more forward,
// unless attention's outputs are kept.
TEST(PlanInputs, AttentionsPartOfAStepIsWhatTokensSeeAndWhatIsComputedAgain) {
  const ModelConfig c = preset("qwen2.5-7b");
  const PlannedMachine planned = machine_from_profile(named_machine("h200"));
  std::vector<double> rest_s;  // per token; their matmuls do not depend on the sequence length
  for (const auto& [batch, seq_len] : {std::pair<int64_t, int64_t>{64, 1024}, {2, 65536}}) {
    const PlanInputs p = plan_inputs(step_of(batch, 1, seq_len), c, planned);
    const Workload& w = p.workload;
    const auto found = fit(p);
    ASSERT_TRUE(found);
    Plan plan = found->plan;
    const double forward =
        static_cast<double>(w.tokens() * c.layers * c.q_dim()) * 2 * static_cast<double>(seq_len + 1);
    const auto share = [&](const char* level, int64_t every) {
      keep(w, plan, level);
      plan.input_every = every;
      return attention_flops(w, plan) / forward;
    };
    EXPECT_NEAR(share("everything", 1), 3.5, 1e-9);
    EXPECT_NEAR(share("outputs", 1), 3.5, 1e-9);
    EXPECT_NEAR(share("nothing", 2), 5, 1e-9);  // the lower of every two layers runs forward again
    EXPECT_NEAR(share("outputs", 2), 3.5, 1e-9);
    EXPECT_NEAR(share("nothing", 1), 4.5, 1e-9);
    const Outlook o = outlook(w, plan, p.profile);
    EXPECT_NEAR(o.attention_s, 4.5 * forward / p.profile.attention_flops_per_s, 1e-6 * o.attention_s);
    rest_s.push_back((o.estimate.compute_s - o.attention_s) / static_cast<double>(w.tokens()));
  }
  EXPECT_NEAR(rest_s[1] / rest_s[0], 1, 0.02);
}

TEST(PlanInputs, AttentionOfExpertsInPartsIsCountedOnce) {
  const ModelConfig c = preset("qwen3-30b-a3b");
  PlanInputs p = plan_inputs(step_of(4, 1, 4096), c, machine_with("4090", 700 * kGiB));
  ASSERT_TRUE(p.workload.phase(1).in_parts());
  const auto found = fit(p);
  ASSERT_TRUE(found);
  Plan plan = found->plan;
  keep(p.workload, plan, "nothing");
  plan.input_every = 1;
  const double forward = 4.0 * 4096 * static_cast<double>(c.layers * c.q_dim()) * 2 * 4097;
  EXPECT_NEAR(attention_flops(p.workload, plan) / forward, 4.5, 1e-9);
}

TEST(PlanInputs, HalfAMillionTokensFitWhereAttentionsOutputsWait) {
  const PlannedMachine planned = machine_with("h200", 125 * kGiB);
  const PlanInputs p = plan_inputs(step_of(1, 1, 524288), preset("qwen2.5-7b"), planned);
  const auto found = fit(p);
  ASSERT_TRUE(found);
  EXPECT_GT(keeping(p.workload, found->plan, "outputs"), 14);
  // with short sequences, a byte of outputs saves less than a byte of the rest of attention's branch
  const auto brief = fit(plan_inputs(step_of(64, 16, 1024), preset("qwen2.5-7b"), planned));
  ASSERT_TRUE(brief);
  EXPECT_EQ(keeping(p.workload, brief->plan, "outputs"), 0);
}

// Attention outputs that do not fit the device wait in host memory, so no block recomputes attention.
TEST(PlanInputs, OfHalfAMillionTokensAttentionsOutputsWaitInHostMemoryWhereItHasRoom) {
  const ModelConfig model = preset("qwen2.5-7b");
  const PlanInputs p = plan_inputs(step_of(1, 1, 524288), model, machine_with("h200", 1500 * kGiB));
  const auto found = fit(p);
  ASSERT_TRUE(found);
  const auto on_host = [](const Plan& plan) {
    return std::ranges::count(plan.phases, Tier::host, &PhasePlan::outputs);
  };
  EXPECT_EQ(keeping(p.workload, found->plan, "nothing"), 0);
  EXPECT_GE(on_host(found->plan), 8);
  const double step_s = estimate(p.workload, found->plan, p.profile).step_s;
  Plan nothing = found->plan;
  keep(p.workload, nothing, "nothing");
  EXPECT_LT(step_s, 0.85 * estimate(p.workload, nothing, p.profile).step_s);
  // with little more than one block's activations on the device, nearly all wait there, and the step is hardly longer
  PlanInputs small = p;
  small.budgets.gpu_bytes = 72 * kGiB;
  const auto little = fit(small);
  ASSERT_TRUE(little);
  EXPECT_GE(on_host(little->plan), 24);
  EXPECT_LT(estimate(p.workload, little->plan, p.profile).step_s, 1.05 * step_s);
}

TEST(PlanInputs, TheLowerHalfIsFrozenByPatternsThatMatchItAlone) {
  const auto of = [](int64_t layers) {
    ModelConfig model;
    model.layers = layers;
    return lower_half(model);
  };
  EXPECT_EQ(of(2), (std::vector<std::string>{"model.embed_tokens.*", "model.layers.0.*"}));
  EXPECT_EQ(of(23), (std::vector<std::string>{"model.embed_tokens.*", "model.layers.[0-9].*", "model.layers.10.*"}));
  EXPECT_EQ(of(28),
            (std::vector<std::string>{"model.embed_tokens.*", "model.layers.[0-9].*", "model.layers.1[0-3].*"}));
  EXPECT_EQ(lower_half(preset("nemotron-nano-9b-v2")).front(), "model.embeddings.*");
  for (const char* name : {"qwen2.5-0.5b", "llama3-8b"}) {
    TrainConfig config = step_of(1, 1, 128);
    const ModelConfig model = preset(name);
    config.freeze = lower_half(model);
    const Workload w = plan_inputs(config, model, machine_from_profile(named_machine("h200"))).workload;
    for (int64_t r = 0; r <= model.layers; ++r) EXPECT_EQ(w.is_trained(r), r > model.layers / 2) << name << " " << r;
  }
}

TEST(PlanInputs, FrozenTensorsOfABfloat16SourceTakeTwoBytesLessAndThoseOfOthersDoNot) {
  TrainConfig config = step_of(1, 1, 128);
  const ModelConfig model = preset("qwen2.5-0.5b");  // none of its tensors is padded
  const PlannedMachine planned = machine_from_profile(named_machine("h200"));
  config.freeze = lower_half(model);
  const auto low_bytes = [&](const TensorTypes& stored) {
    const Workload w = plan_inputs(config, model, planned, stored).workload;
    int64_t bytes = 0;
    for (int64_t r = 0; r < w.record_count(); ++r) bytes += w.low_bytes(r);
    return bytes;
  };
  int64_t all = 0, frozen = 0;
  TensorTypes single = declared_types(model);
  for (const LayerLayout& layout : model_layouts(model, DType::bf16, {.freeze = config.freeze})) {
    for (const TensorSpec& tensor : layout.tensors) {
      all += tensor.elements();
      if (!tensor.trainable) frozen += tensor.elements();
      EXPECT_EQ(single.at(tensor.name), DType::bf16);
      single[tensor.name] = tensor.is_vector() ? DType::f16 : DType::f32;
    }
  }
  EXPECT_EQ(low_bytes({}), 2 * all);
  EXPECT_EQ(low_bytes(single), 2 * all);
  EXPECT_EQ(low_bytes(declared_types(model)), 2 * (all - frozen));
  config.precision = "fp32";
  EXPECT_EQ(low_bytes(declared_types(model)), 0);
}

TEST(WhatFits, HasEveryPresetInEveryModeAndFitsMoreWithMoreMemory) {
  const double start = cpu_seconds();
  const std::vector<std::string> presets = {"llama3-3b", "qwen3-4b", "qwen2.5-0.5b", "qwen2.5-7b", "llama3-70b"};
  const std::vector<FitRow> small = what_fits(presets, {}, false, machine_with("4090", 32 * kGiB));
  const std::vector<FitRow> large = what_fits(presets, {}, false, machine_with("4090", 256 * kGiB));
  EXPECT_LT(cpu_seconds() - start, 30);
  const size_t modes = fit_modes().size();
  ASSERT_EQ(small.size(), presets.size() * modes);
  ASSERT_EQ(large.size(), small.size());
  int64_t before = 0;
  for (size_t i = 0; i < small.size(); ++i) {
    const FitRow &a = small[i], &b = large[i];
    EXPECT_EQ(a.model, b.model);
    EXPECT_EQ(a.mode, fit_modes()[i % modes]);
    EXPECT_GE(a.parameters, before);
    before = a.parameters;
    EXPECT_GE(b.fits, a.fits) << a.model << " " << a.mode;
    EXPECT_EQ(a.fits, a.tokens_per_s > 0) << a.model << " " << a.mode;
    EXPECT_GT(a.ram_bytes, 0) << a.model << " " << a.mode;
    EXPECT_GT(a.hbm_bytes, 0) << a.model << " " << a.mode;
    if (a.fits) {
      EXPECT_LE(a.ram_bytes, host_budget(32 * kGiB));
    }
  }
  const auto fitting = [&](const std::vector<FitRow>& rows, const std::string& mode) {
    return std::count_if(rows.begin(), rows.end(), [&](const FitRow& r) { return r.fits && r.mode == mode; });
  };
  EXPECT_GT(fitting(small, "fp32"), 0);
  EXPECT_GT(fitting(small, "int8"), fitting(small, "fp32"));
  EXPECT_GT(fitting(large, "fp32"), fitting(small, "fp32"));
  EXPECT_EQ(fitting(small, "longest context"), fitting(small, "int8+stochastic"));
  EXPECT_GT(fitting(large, "LoRA"), fitting(large, "int8+stochastic"));
  const FitTable table(presets);
  const std::vector<FitRow> first(small.begin(), small.begin() + static_cast<int64_t>(modes));
  EXPECT_NE(table.header().find("int8+stochastic"), std::string::npos) << table.header();
  EXPECT_TRUE(table.line(first).starts_with("qwen2.5-0.5b  ")) << table.line(first);
  EXPECT_EQ(table.line(first).find(" no"), std::string::npos) << table.line(first);
}

TEST(WhatFits, TellsTheRowsOfAModelInOrderAndBeforeLargerModelsAreKnown) {
  const std::vector<std::string> presets = {"qwen3-4b", "qwen2.5-0.5b", "qwen2.5-1.5b"};
  std::vector<std::string> told;
  TrainConfig config;
  config.threads = 3;
  const std::vector<FitRow> rows =
      what_fits(presets, config, false, machine_with("4090", 64 * kGiB), [&](const std::vector<FitRow>& of_model) {
        EXPECT_EQ(of_model.size(), fit_modes().size());
        told.push_back(of_model.front().model);
      });
  EXPECT_EQ(told, (std::vector<std::string>{"qwen2.5-0.5b", "qwen2.5-1.5b", "qwen3-4b"}));
  EXPECT_EQ(rows.size(), presets.size() * fit_modes().size());
}

TEST(WhatFits, SaysWhatAGpuWouldChangeForAMachineThatHasNone) {
  MachineProfile cpu = named_machine("4090");
  cpu.shared_cores = 8;
  cpu.updates_on_device = false;
  cpu.flops_per_s = 240e9;
  cpu.hbm_bytes_per_s = 80e9;
  const std::vector<GpuGain> gains = gpu_gains({}, machine_from_profile(cpu), machine_with("4090", 64 * kGiB));
  ASSERT_FALSE(gains.empty());
  for (const GpuGain& gain : gains) {
    EXPECT_EQ(gain.here.model, gain.with_gpu.model);
    EXPECT_EQ(gain.here.mode, gain.with_gpu.mode);
    EXPECT_GT(gain.with_gpu.tokens_per_s, 100 * gain.here.tokens_per_s) << gain.here.model;
    EXPECT_GT(gain.least_gpu_bytes, 0) << gain.here.model;
    EXPECT_LE(gain.least_gpu_bytes, 24 * kGiB) << gain.here.model;
  }
}

TEST(WhatFits, AdaptersNeedTheBaseAsItIsReleasedAndMoreTokensIfItStaysInItsFiles) {
  const auto adapters = [](const std::string& preset, PlannedMachine machine) {
    const std::vector<FitRow> rows = what_fits({preset}, {}, false, machine);
    return *std::ranges::find(rows, std::string("LoRA"), &FitRow::mode);
  };
  const FitRow packed = adapters("gpt-oss-20b", machine_with("4090", 20 * kGiB));  // 13 GiB in MXFP4, 39 in bf16
  EXPECT_TRUE(packed.fits);
  EXPECT_GT(packed.batch, 1);
  EXPECT_EQ(packed.disk_bytes, 0);
  const PlannedMachine small_host = machine_with("4090", 32 * kGiB);
  const FitRow with = adapters("qwen2.5-32b", small_host);
  EXPECT_TRUE(with.fits);
  EXPECT_GT(with.disk_bytes, 10 * kGiB);
  const PlanInputs small = [&] {
    TrainConfig config;
    config.adapter = {.rank = 16};
    config.batch = config.micro_batch = 8;
    const ModelConfig model = preset("qwen2.5-32b");
    return plan_inputs(config, model, small_host, declared_types(model));
  }();
  EXPECT_GT(with.tokens_per_s, 1.2 * fit(small)->outlook.tokens_per_s);
}

}  // namespace megatrain
