// `bench ops`: times every op at the shapes of a model, each alone. The calls come from the model's phases; embedding,
// gradient finishing and update are added here.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "megatrain/base/math.h"
#include "megatrain/base/table.h"
#include "megatrain/bench/bench.h"
#include "megatrain/config/arguments.h"
#include "megatrain/device/call_timer.h"
#include "megatrain/model/model.h"
#include "megatrain/ops/note_cost.h"
#include "megatrain/ops/note_memory.h"
#include "megatrain/ops/op_notes.h"
#include "megatrain/optim/scalars.h"
#include "megatrain/train/algorithms.h"

namespace megatrain {

namespace {

constexpr int kSamples = 7;

class OpsBench {
 public:
  explicit OpsBench(Machine& machine)
      : machine_(machine), stream_(machine.device->make_stream("ops")), timer_(*machine.device, *stream_) {}

  void row(const std::string& text, double flops, double bytes, const std::function<void()>& call) {
    const double s = timer_.median_s(call, kSamples);
    calls_.push_back({{"call", text},
                      {"seconds", s},
                      {"tflops", flops > 0 ? nlohmann::json(flops / s * 1e-12) : nlohmann::json()},
                      {"bytes_per_s", bytes / s}});
    table_.row({text, fmt::format("{:.3f}", s * 1e3), flops > 0 ? fmt::format("{:.1f}", flops / s * 1e-12) : "",
                fmt::format("{:.0f}", bytes / s * 1e-9)});
  }

  void note(const OpNote& note, NoteMemory& memory) {
    const OpNote placed = memory.place(note);
    row(note_text(note), note_flops(note), note_bytes(note), [&] { run_note(ops(), *stream_, placed); });
  }

  // Zeroed device memory.
  View tensor(DType dtype, int64_t rows, int64_t cols) {
    const size_t bytes = static_cast<size_t>(rows * cols * dtype_bytes(dtype));
    buffers_.push_back(machine_.device->allocate(bytes, "timed calls"));
    stream_->zero(buffers_.back().data(), bytes);
    return matrix(buffers_.back().data(), dtype, rows, cols);
  }
  const int32_t* list(const std::vector<int32_t>& values) {
    const View view = tensor(DType::i32, 1, static_cast<int64_t>(values.size()));
    stream_->copy(view.data, values.data(), values.size() * sizeof(int32_t));
    stream_->synchronize();
    return view.as<int32_t>();
  }
  void free() {
    stream_->synchronize();
    buffers_.clear();
  }

  Ops& ops() { return *machine_.ops; }
  Stream& stream() { return *stream_; }
  const nlohmann::json& calls() const { return calls_; }
  std::string text() const { return table_.text(); }

 private:
  Machine& machine_;
  std::unique_ptr<Stream> stream_;
  CallTimer timer_;
  std::vector<Buffer> buffers_;
  nlohmann::json calls_ = nlohmann::json::array();
  Table table_{{"call", "ms", "TFLOP/s", "GB/s"}};
};

// Each token has its own row, except that one token in eight uses the same row: the longest segment bounds the op.
void embedding(OpsBench& bench, const ModelConfig& model, DType dtype, int64_t tokens) {
  const int64_t rows = tokens - tokens / 8 + 1, first = tokens - rows + 1;
  std::vector<int32_t> index, order, begin{0}, row;
  for (int64_t t = 0; t < tokens; ++t) {
    index.push_back(static_cast<int32_t>(std::max<int64_t>(t - first + 1, 0)));
    order.push_back(static_cast<int32_t>(t));
  }
  for (int64_t r = 0; r < rows; ++r) {
    begin.push_back(static_cast<int32_t>(first + r));
    row.push_back(static_cast<int32_t>(r));
  }
  const View table = bench.tensor(dtype, rows, model.hidden), grad = bench.tensor(DType::f32, rows, model.hidden);
  const View x = bench.tensor(dtype, tokens, model.hidden);
  const int32_t *index_d = bench.list(index), *order_d = bench.list(order), *begin_d = bench.list(begin),
                *row_d = bench.list(row);
  const std::string shape = fmt::format("{} tokens, {} rows", tokens, rows);
  bench.row("embedding " + shape, 0, 2.0 * static_cast<double>(x.bytes()),
            [&] { bench.ops().embedding_forward(bench.stream(), {.table = table, .index = index_d, .out = x}); });
  bench.row("embedding backward " + shape, 0, static_cast<double>(x.bytes()) + 2.0 * static_cast<double>(grad.bytes()),
            [&] {
              bench.ops().embedding_backward(
                  bench.stream(),
                  {.grad_out = x, .order = order_d, .begin = begin_d, .row = row_d, .segments = rows, .grad = grad});
            });
  bench.free();
}

// For one block.
void gradient_and_update(OpsBench& bench, int64_t count, DType dtype) {
  const View grad = bench.tensor(DType::f32, 1, count), out = bench.tensor(dtype, 1, count);
  const View sums = bench.tensor(DType::f64, 1, ceil_div(count, kNormBlock) + 1);
  const double n = static_cast<double>(count), out_bytes = static_cast<double>(dtype_bytes(dtype));
  bench.row(fmt::format("finish gradient {}", count), 0, (4 + out_bytes) * n, [&] {
    bench.ops().finish_gradient(bench.stream(), {.grad = grad,
                                                 .dtype = dtype,
                                                 .out = out,
                                                 .partials = sums.as<double>() + 1,
                                                 .sums_of_squares = sums.as<double>()});
  });
  const View m = bench.tensor(DType::f32, 1, count), v = bench.tensor(DType::f32, 1, count);
  const View weight = bench.tensor(dtype, 1, count), mark = bench.tensor(DType::i32, 1, 1);
  const View clip = bench.tensor(DType::f32, 1, 1);  // 0: any factor takes the same time
  AdamWUpdate update{.scalars = adamw_scalars({.lr = 1e-5, .weight_decay = 0.01, .t = 10}),
                     .count = count,
                     .grad = grad.as<float>(),
                     .m = m.as<float>(),
                     .v = v.as<float>(),
                     .clip = clip.as<float>(),
                     .not_finite = mark.as<int32_t>()};
  if (dtype == DType::bf16) {
    update.weight = weight.as<bf16>();
    update.low = bench.tensor(DType::u16, 1, count).as<uint16_t>();
  } else {
    update.master = weight.as<float>();
  }
  bench.row(fmt::format("adamw {}", count), 0, 28.0 * n, [&] { bench.ops().adamw(bench.stream(), update); });
  bench.free();
}

// Adds calls with the same documents that may not assume equal lengths.
std::vector<OpNote> with_ragged_attention(std::vector<OpNote> notes) {
  std::vector<OpNote> ragged;
  for (const OpNote& note : notes) {
    if (const auto* forward = std::get_if<AttentionForward>(&note)) {
      ragged.emplace_back(*forward);
      std::get<AttentionForward>(ragged.back()).documents.uniform = false;
    } else if (const auto* backward = std::get_if<AttentionBackward>(&note)) {
      ragged.emplace_back(*backward);
      std::get<AttentionBackward>(ragged.back()).documents.uniform = false;
    }
  }
  notes.insert(notes.end(), ragged.begin(), ragged.end());
  return notes;
}

}  // namespace

BenchResult bench_ops(const Arguments& arguments) {
  Session session = open_bench_target(arguments, Shape::one_micro_batch);
  session.choose_algorithms();
  const RunIdentity& identity = session.identity();
  OpsBench bench(session.machine());
  {
    NoteMemory memory(session.device(), bench.stream());
    std::set<std::string> timed;
    for (const OpNote& note :
         with_ragged_attention(notes_of(session.config(), session.model(), identity, true).recomputing())) {
      if (timed.insert(note_text(note)).second) bench.note(note, memory);
    }
  }
  embedding(bench, session.model(), identity.dtype, identity.micro_tokens);
  gradient_and_update(bench, largest_layer_record(session.model()), identity.dtype);
  return {.json = {{"calls", bench.calls()},
                   {"machine", {{"device", session.device().name()}, {"library", identity.library}}}},
          .text = bench.text()};
}

}  // namespace megatrain
