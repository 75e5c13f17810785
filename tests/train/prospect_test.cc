// What would fit where, without a device: suggestions, and the table of models.
#include "megatrain/train/prospect.h"

#include <ctime>

#include "megatrain/base/units.h"
#include "megatrain/model/presets.h"
#include "megatrain/plan/machines.h"
#include "megatrain/train/site.h"
#include "megatrain/train/what_fits.h"
#include "tests/hub/fixtures.h"

namespace megatrain {

namespace {

ModelConfig preset(const std::string& name) { return parse_model_config(*preset_config(name), name); }

TrainConfig step_of(int64_t batch, int64_t micro_batch, int64_t seq_len = 1024) {
  TrainConfig config;
  config.batch = batch;
  config.micro_batch = micro_batch;
  config.seq_len = seq_len;
  return config;
}

Site machine_with(const std::string& name, int64_t ram_bytes, int64_t hbm_bytes = 0) {
  MachineProfile machine = named_machine(name);
  machine.host_bytes = ram_bytes;
  if (hbm_bytes > 0) machine.hbm_bytes = hbm_bytes;
  return site_of(machine);
}

bool some_starts_with(const std::vector<Suggestion>& list, const std::string& begin) {
  return std::any_of(list.begin(), list.end(), [&](const Suggestion& s) { return s.change.starts_with(begin); });
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace

TEST(Prospect, AMachineThatIsNotThereHasTheMemoryOfItsProfileLessWhatIsLeftFree) {
  const Site site = site_of(named_machine("4090"));
  EXPECT_EQ(site.budgets.gpu_bytes, 23 * kGiB - 512 * kMiB);
  EXPECT_EQ(site.budgets.host_bytes, host_budget(64 * kGiB));
  EXPECT_LT(site.budgets.host_bytes, 62 * kGiB);
  EXPECT_EQ(host_budget(kGiB), 0);
  const Prospect p = prospect_of(step_of(8, 8), preset("qwen2.5-3b"), site);
  EXPECT_GT(p.workload.device_base_bytes, 0);
  EXPECT_GT(p.workload.scratch_bytes, 0);
  const auto found = fit(p);
  ASSERT_TRUE(found);
  EXPECT_LE(found->need.hbm_bytes(), site.budgets.gpu_bytes);
  EXPECT_LE(found->need.host_bytes(), site.budgets.host_bytes);
}

TEST(Prospect, TheScratchOfADeviceThatIsNotThereGrowsWithTheSquareOfLongSequences) {
  const Site site = site_of(named_machine("h200"));
  const auto scratch = [&](int64_t seq_len) {
    return prospect_of(step_of(1, 1, seq_len), preset("qwen2.5-7b"), site).workload.scratch_bytes;
  };
  EXPECT_EQ(scratch(1024), scratch(2048));
  EXPECT_GE(scratch(16384), 7 * 16384 * 16384 * int64_t{2});  // seven heads share a key head
  EXPECT_NEAR(static_cast<double>(scratch(65536)) / static_cast<double>(scratch(32768)), 4, 0.1);
}

TEST(Prospect, TheLowerHalfIsFrozenByPatternsThatMatchItAlone) {
  EXPECT_EQ(lower_half(2), (std::vector<std::string>{"model.embed_tokens.*", "model.layers.0.*"}));
  EXPECT_EQ(lower_half(23),
            (std::vector<std::string>{"model.embed_tokens.*", "model.layers.[0-9].*", "model.layers.10.*"}));
  EXPECT_EQ(lower_half(28),
            (std::vector<std::string>{"model.embed_tokens.*", "model.layers.[0-9].*", "model.layers.1[0-3].*"}));
  for (const char* name : {"qwen2.5-0.5b", "llama3-8b"}) {
    TrainConfig config = step_of(1, 1, 128);
    const ModelConfig model = preset(name);
    config.freeze = lower_half(model.layers);
    const Workload w = prospect_of(config, model, site_of(named_machine("h200"))).workload;
    for (int64_t r = 0; r <= model.layers; ++r) EXPECT_EQ(w.is_trained(r), r > model.layers / 2) << name << " " << r;
  }
}

TEST(Prospect, EverySuggestionFitsAndTheFirstIsTheNearest) {
  // 7.6 billion parameters: 91 GB of state, 53 in int8, 61 in bf16
  const Site site = machine_with("4090", 80 * kGiB);
  const TrainConfig config = step_of(32, 8);
  const ModelConfig model = preset("qwen2.5-7b");
  ASSERT_FALSE(fit(prospect_of(config, model, site)));
  const std::vector<Suggestion> list = what_would_fit(config, model, site);
  ASSERT_EQ(list.size(), 3u);
  const std::string disk = "memory.nvme_path=DIR memory.nvme=";
  ASSERT_TRUE(list[0].change.starts_with(disk)) << list[0].change;
  EXPECT_EQ(list[1].change, "state.moments=bf16");
  EXPECT_TRUE(list[2].change.starts_with("freeze=model.embed_tokens.*,model.layers.[0-9].*"));
  for (const Suggestion& s : list) EXPECT_GT(s.tokens_per_s, 100) << s.change;
  // the disk that is asked for is enough
  Prospect with_disk = prospect_of(config, model, site);
  with_disk.budgets.disk_bytes = parse_bytes(list[0].change.substr(disk.size()));
  EXPECT_TRUE(fit(with_disk));
  EXPECT_TRUE(fit(prospect_of(with_state(config, {.moments = MomentFormat::bf16}), model, site)));
}

TEST(Prospect, WhereTheDeviceIsTooSmallFewerTokensAtATimeAreSuggested) {
  const Site site = machine_with("4090", 256 * kGiB, 12 * kGiB);
  const TrainConfig config = step_of(16, 16, 4096);
  const ModelConfig model = preset("qwen2.5-7b");
  ASSERT_FALSE(fit(prospect_of(config, model, site)));
  const std::vector<Suggestion> list = what_would_fit(config, model, site);
  ASSERT_FALSE(list.empty());
  EXPECT_TRUE(list[0].change.starts_with("micro_batch=")) << list[0].change;
  EXPECT_FALSE(some_starts_with(list, "0 B"));
}

TEST(Prospect, AModelFarTooLargeIsToldTheRamItNeeds) {
  const TrainConfig config = step_of(16, 8);
  const ModelConfig model = preset("llama3-70b");
  const std::vector<Suggestion> list = what_would_fit(config, model, machine_with("3090", 32 * kGiB));
  ASSERT_FALSE(list.empty());
  const std::string& change = list.back().change;
  ASSERT_TRUE(change.ends_with("more RAM")) << change;
  const int64_t more = parse_bytes(change.substr(0, change.find(" more")));
  EXPECT_TRUE(fit(prospect_of(config, model, machine_with("3090", 32 * kGiB + more))));
  EXPECT_FALSE(fit(prospect_of(config, model, machine_with("3090", 32 * kGiB + more * 95 / 100))));
}

TEST(WhatFits, HasEveryPresetInEveryModeAndFitsMoreWithMoreMemory) {
  const double start = cpu_seconds();
  const std::vector<std::string> presets = {"llama3-3b", "qwen2.5-0.5b", "qwen2.5-7b", "llama3-70b"};
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
  const std::string text = what_fits_text(small);
  for (const char* part : {"qwen2.5-0.5b", "llama3-70b", "int8+stochastic", "no"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
}

}  // namespace megatrain
