// How fast the device computes: times the calls of one layer and a head, each alone, at a few sizes.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "megatrain/base/clock.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/bench/measure.h"
#include "megatrain/device/call_timer.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/step_notes.h"
#include "megatrain/ops/note_cost.h"
#include "megatrain/ops/note_memory.h"
#include "megatrain/ops/op_notes.h"

namespace megatrain {

namespace {

struct LayerSize {
  int64_t hidden, ff, heads, kv_heads, seq_len, sequences;
};

// From small to large, each with a few times the work of the one before.
const std::vector<LayerSize>& sizes_of(DeviceKind kind) {
  static const std::vector<LayerSize> kCpu = {{64, 192, 2, 1, 64, 2},
                                              {128, 384, 4, 2, 128, 2},
                                              {256, 768, 4, 2, 256, 2},
                                              {512, 1536, 8, 2, 512, 1},
                                              {1024, 2816, 16, 4, 512, 1}};
  static const std::vector<LayerSize> kCuda = {
      {1024, 3072, 8, 2, 512, 8}, {2048, 6144, 16, 4, 2048, 4}, {4096, 14336, 32, 8, 8192, 1}};
  return kind == DeviceKind::cpu ? kCpu : kCuda;
}

struct ExpertSize {
  int64_t hidden, ff, experts, chosen, tokens;
};

// From few flops per expert to many.
const std::vector<ExpertSize>& expert_sizes_of(DeviceKind kind) {
  static const std::vector<ExpertSize> kCpu = {{64, 64, 8, 2, 64}, {128, 192, 8, 2, 256}};
  static const std::vector<ExpertSize> kCuda = {
      {2048, 768, 128, 8, 4096}, {2048, 768, 128, 8, 16384}, {2880, 2880, 32, 4, 16384}};
  return kind == DeviceKind::cpu ? kCpu : kCuda;
}

PresetSizes one_layer(int64_t hidden, int64_t ff, int64_t heads, int64_t kv_heads) {
  return {.hidden = hidden,
          .ff = ff,
          .layers = 1,
          .heads = heads,
          .kv_heads = kv_heads,
          .vocab = 4 * hidden,
          .tied = false,
          .norm_eps = 1e-6,
          .rope_theta = 1e6};
}

using Calls = std::vector<TimedLayer::Call>;

// The calls of a micro-batch in a model with one layer.
Calls distinct_calls(const nlohmann::json& json, int64_t sequences, int64_t seq_len) {
  const ModelConfig model = parse_model_config(json, "a layer to be timed");
  const int64_t tokens = seq_len * sequences;
  const StepNotes notes = step_notes(
      model,
      {.dtype = DType::bf16, .sequences = sequences, .seq_len = seq_len, .mlp_chunk = tokens, .head_chunk = tokens});
  std::map<std::string, size_t> index;
  Calls calls;
  for (const OpNote& note : notes.keeping()) {
    const auto [at, added] = index.emplace(note_text(note), calls.size());
    if (added) calls.push_back({note, 0});
    ++calls[at->second].times;
  }
  return calls;
}

double flops_of(const Calls& calls) {
  double flops = 0;
  for (const TimedLayer::Call& call : calls) flops += note_flops(call.note);
  return flops;
}

struct Total {
  double work = 0, seconds = 0;  // flops, or bytes
  int64_t calls = 0;
  void add(double of_one, double one_s, int64_t times) {
    work += of_one * static_cast<double>(times);
    seconds += one_s * static_cast<double>(times);
    calls += times;
  }
  double rate() const { return work / seconds; }
};

constexpr int kMachineSamples = 3;
constexpr double kSustainedSeconds = 1;

// A GPU at its power limit lowers its clocks. So a call is timed alone, and repeated without a pause.
struct CallSeconds {
  double alone, sustained;
};
CallSeconds seconds_of(CallTimer& timer, const std::function<void()>& call) {
  const double alone = timer.median_s(call, kMachineSamples);
  const int calls = static_cast<int>(std::clamp(kSustainedSeconds / alone, 1.0, 1e5));
  return {alone, timer.once_s(call, calls) / calls};
}

// How much longer a GEMM takes within a step than alone. A step has lighter work between its GEMMs, so it is taken as
// the geometric mean of the two.
double slowdown_within_a_step(const CallSeconds& matmul) {
  return std::sqrt(std::max(1.0, matmul.sustained / matmul.alone));
}

}  // namespace

std::vector<TimedLayer> dense_layers(DeviceKind kind) {
  std::vector<TimedLayer> layers;
  for (const LayerSize& size : sizes_of(kind)) {
    layers.push_back({distinct_calls(preset_json("LlamaForCausalLM", "llama",
                                                 one_layer(size.hidden, size.ff, size.heads, size.kv_heads)),
                                     size.sequences, size.seq_len),
                      size.seq_len});
  }
  return layers;
}

std::vector<TimedLayer> expert_matmuls(DeviceKind kind) {
  constexpr int64_t kHead = 64;  // for attention, whose calls are left out
  std::vector<TimedLayer> layers;
  for (const ExpertSize& size : expert_sizes_of(kind)) {
    nlohmann::json json = preset_json("Qwen3MoeForCausalLM", "qwen3_moe", one_layer(size.hidden, size.ff, 1, 1));
    json.update({{"head_dim", kHead},
                 {"num_experts", size.experts},
                 {"num_experts_per_tok", size.chosen},
                 {"moe_intermediate_size", size.ff},
                 {"norm_topk_prob", true}});
    Calls calls = distinct_calls(json, 1, size.tokens);
    std::erase_if(calls, [](const auto& call) { return note_flops(call.note) == 0 || !expert_count(call.note); });
    layers.push_back({std::move(calls), size.tokens});
  }
  return layers;
}

std::vector<TimedLayer> long_attention(DeviceKind kind) {
  if (kind == DeviceKind::cpu) return {};
  constexpr int64_t kLength = 32768;  // long enough to be computed in tiles, as all longer ones are
  Calls calls = distinct_calls(preset_json("LlamaForCausalLM", "llama", one_layer(4096, 4096, 32, 8)), 1, kLength);
  std::erase_if(calls, [](const auto& call) { return !attention_length(call.note); });
  return {{std::move(calls), kLength}};
}

ComputeRates measure_compute(Machine& machine, double most_s) {
  constexpr int kCallsOfASample = kMachineSamples + 2;
  const double start = now_s();
  Device& device = *machine.device;
  const std::unique_ptr<Stream> stream = device.make_stream("compute");
  CallTimer timer(device, *stream);
  NoteMemory memory(device, *stream);
  ComputeRates rates;
  std::optional<OpNote> heaviest;  // the heaviest GEMM
  const auto expected_s = [&](const Calls& calls) {
    return rates.layer_flops_per_s > 0 ? kCallsOfASample * flops_of(calls) / rates.layer_flops_per_s : 0;
  };
  for (const auto& [calls, seq_len] : dense_layers(device.kind())) {
    if (now_s() - start + expected_s(calls) > most_s) break;
    std::vector<OpNote> matmuls;
    for (const auto& [note, times] : calls) {
      if (note_flops(note) > 0) matmuls.push_back(note);
    }
    machine.ops->tune(matmuls, {});
    Total matmul, attention, small, layer;
    for (const auto& [note, times] : calls) {
      const OpNote placed = memory.place(note);
      const double seconds = timer.median_s([&] { run_note(*machine.ops, *stream, placed); }, kMachineSamples);
      const double of_note = note_flops(note);
      layer.add(of_note, seconds, times);
      if (attention_length(note)) {
        attention.add(of_note, seconds, times);
      } else if (of_note > 0) {
        matmul.add(of_note, seconds, times);
        if (!heaviest || of_note > note_flops(*heaviest)) heaviest = note;
      } else {
        small.add(note_bytes(note), seconds, times);
      }
    }
    rates.matmuls.push_back({matmul.work / static_cast<double>(matmul.calls), matmul.rate()});
    const double length = static_cast<double>(seq_len);
    if (rates.attention.empty() || rates.attention.back().size < length)
      rates.attention.push_back({length, attention.rate()});
    rates.small_bytes_per_s = small.rate();
    rates.layer_flops_per_s = layer.rate();
  }
  using Seconds = std::function<double(const std::function<void()>& call)>;
  const auto all_of = [&](const Calls& calls, const Seconds& seconds) {
    Total total;
    for (const auto& [note, times] : calls) {
      const OpNote placed = memory.place(note);
      total.add(note_flops(note), seconds([&] { run_note(*machine.ops, *stream, placed); }), times);
    }
    return total;
  };
  for (const auto& [calls, tokens] : expert_matmuls(device.kind())) {
    if (now_s() - start + expected_s(calls) > most_s) break;
    double of_one = 0;  // flops of one expert
    for (const auto& [note, times] : calls)
      of_one += note_flops(note) / static_cast<double>(*expert_count(note)) * static_cast<double>(times);
    const Total matmuls = all_of(calls, [&](const auto& call) { return timer.median_s(call, kMachineSamples); });
    rates.experts.push_back({of_one / static_cast<double>(matmuls.calls), matmuls.rate()});
  }
  if (heaviest) {
    const OpNote placed = memory.place(*heaviest);
    const double slowdown = slowdown_within_a_step(seconds_of(timer, [&] { run_note(*machine.ops, *stream, placed); }));
    for (RateTable* table : {&rates.matmuls, &rates.experts, &rates.attention}) {
      for (RatePoint& point : *table) point.per_s /= slowdown;
    }
    rates.layer_flops_per_s /= slowdown;
  }
  // In a long sequence nearly all time is attention, so the sustained speed counts.
  for (const auto& [calls, length] : long_attention(device.kind())) {
    if (now_s() - start + kSustainedSeconds * static_cast<double>(calls.size()) + expected_s(calls) > most_s) break;
    const Total attention = all_of(calls, [&](const auto& call) { return seconds_of(timer, call).sustained; });
    rates.attention.push_back({static_cast<double>(length), attention.rate()});
  }
  stream->synchronize();
  return rates;
}

}  // namespace megatrain
