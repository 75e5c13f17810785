#include "megatrain/bench/bench_floor.h"

#include <fmt/format.h>

#include "megatrain/base/table.h"
#include "megatrain/bench/bench.h"
#include "megatrain/config/arguments.h"
#include "megatrain/device/call_timer.h"
#include "megatrain/ops/note_cost.h"
#include "megatrain/ops/note_memory.h"
#include "megatrain/ops/op_notes.h"
#include "megatrain/train/algorithms.h"

namespace megatrain {

namespace {

double tokens_per_s(const Floor& floor, int64_t FloorCall::*count) {
  double seconds = 0;
  for (const FloorCall& call : floor.calls) seconds += static_cast<double>(call.*count) * call.seconds;
  return static_cast<double>(floor.micro_tokens) / seconds;
}

}  // namespace

double Floor::recompute_tokens_per_s() const { return tokens_per_s(*this, &FloorCall::recompute); }
double Floor::keep_tokens_per_s() const { return tokens_per_s(*this, &FloorCall::keep); }

const Floor& measure_floor(Session& session, Floors& floors) {
  constexpr int kSamples = 7;
  const RunIdentity& identity = session.identity();
  Floor floor;
  floor.micro_tokens = identity.micro_tokens;
  const StepNotes notes = notes_of(session.config(), session.model(), identity, false);
  std::map<std::string, size_t> index;
  std::vector<OpNote> distinct;
  const auto count = [&](const std::vector<OpNote>& list, int64_t FloorCall::*times) {
    for (const OpNote& note : list) {
      if (note_flops(note) == 0) continue;
      const std::string text = note_text(note);
      const auto [at, added] = index.emplace(text, distinct.size());
      if (added) {
        distinct.push_back(note);
        floor.calls.push_back({.text = text, .flops = note_flops(note)});
      }
      ++(floor.calls[at->second].*times);
    }
  };
  count(notes.recomputing(), &FloorCall::recompute);
  count(notes.keeping(), &FloorCall::keep);

  std::string key;
  for (const FloorCall& call : floor.calls) key += fmt::format("{} {} {}\n", call.recompute, call.keep, call.text);
  if (const auto found = floors.find(key); found != floors.end()) return found->second;

  Device& device = session.device();
  const std::unique_ptr<Ops> ops = make_ops(device, session.threads());
  ops->tune(distinct, identity.algorithms);
  const std::unique_ptr<Stream> stream = device.make_stream("floor");
  CallTimer timer(device, *stream);
  NoteMemory memory(device, *stream);
  for (size_t i = 0; i < distinct.size(); ++i) {
    const OpNote placed = memory.place(distinct[i]);
    floor.calls[i].seconds = timer.median_s([&] { run_note(*ops, *stream, placed); }, kSamples);
  }
  stream->synchronize();
  return floors.emplace(key, std::move(floor)).first->second;
}

BenchResult bench_floor(const Arguments& arguments) {
  Session session = open_bench_target(arguments, Shape::one_micro_batch);
  session.choose_algorithms();
  Floors floors;
  const Floor& floor = measure_floor(session, floors);

  const int64_t micro_batches = session.config().batch / session.config().micro_batch;
  Table table({"call", "recompute", "keep", "ms", "TFLOP/s"});
  nlohmann::json calls = nlohmann::json::array();
  for (const FloorCall& call : floor.calls) {
    const double tflops = call.flops / call.seconds * 1e-12;
    calls.push_back({{"call", call.text},
                     {"recompute", call.recompute * micro_batches},
                     {"keep", call.keep * micro_batches},
                     {"seconds", call.seconds},
                     {"tflops", tflops}});
    table.row({call.text, fmt::format("{}", call.recompute * micro_batches),
               fmt::format("{}", call.keep * micro_batches), fmt::format("{:.3f}", call.seconds * 1e3),
               fmt::format("{:.1f}", tflops)});
  }
  BenchResult result;
  result.json = {{"tokens_per_step", floor.micro_tokens * micro_batches},
                 {"tokens_per_s", {{"recompute", floor.recompute_tokens_per_s()}, {"keep", floor.keep_tokens_per_s()}}},
                 {"calls", calls},
                 {"machine", {{"device", session.device().name()}, {"library", session.identity().library}}}};
  result.text = table.text() + fmt::format("{:.0f} tokens/s recomputing every block, {:.0f} tokens/s keeping all\n",
                                           floor.recompute_tokens_per_s(), floor.keep_tokens_per_s());
  return result;
}

}  // namespace megatrain
