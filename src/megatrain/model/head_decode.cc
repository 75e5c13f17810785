#include "megatrain/model/head_decode.h"

#include "megatrain/model/carve.h"

namespace megatrain {

struct HeadDecode::Work {
  View rows;       // (rows, H)
  View normed;     // (rows, H)
  float* inv_rms;  // (rows)
  int64_t bytes;
};

HeadDecode::HeadDecode(const ModelConfig& config, DType dtype, int64_t rows)
    : hidden_(config.hidden),
      eps_(static_cast<float>(config.norm_eps)),
      dtype_(dtype),
      workspace_bytes_(carve(nullptr, rows).bytes) {}

HeadDecode::Work HeadDecode::carve(std::byte* workspace, int64_t rows) const {
  Carver carver(workspace);
  Work w{};
  w.rows = carver.view(dtype_, rows, hidden_);
  w.normed = carver.view(dtype_, rows, hidden_);
  w.inv_rms = carver.array<float>(rows);
  w.bytes = carver.bytes();
  return w;
}

void HeadDecode::norm(Ops& ops, Stream& stream, const Norm& a) const {
  const Work w = carve(a.workspace, a.rows);
  ops.embedding_forward(stream, {.table = a.x, .index = a.index, .out = w.rows});
  ops.rmsnorm_forward(
      stream,
      {.x = w.rows, .weight = vector(a.norm, dtype_, hidden_), .eps = eps_, .out = w.normed, .inv_rms = w.inv_rms});
}

void HeadDecode::logits(Ops& ops, Stream& stream, const Logits& a) const {
  ops.linear_forward(stream, {.x = carve(a.workspace, a.rows).normed,
                              .weight = matrix(a.table, dtype_, a.count, hidden_),
                              .bias = {},
                              .residual = {},
                              .out = a.logits.slice_cols(a.begin, a.count)});
}

}  // namespace megatrain
