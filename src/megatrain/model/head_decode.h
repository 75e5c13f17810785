// The head's forward for generation: fp32 logits of some rows. The table comes in ranges of its rows, so that one that
// does not fit the device whole can pass through it.
#pragma once

#include <cstdint>

#include "megatrain/model/config.h"
#include "megatrain/ops/ops.h"

namespace megatrain {

class HeadDecode {
 public:
  // `rows` is the most of one call.
  HeadDecode(const ModelConfig& config, DType dtype, int64_t rows);

  int64_t workspace_bytes() const { return workspace_bytes_; }

  // The final norm of rows index[0..rows) of x, into the workspace.
  struct Norm {
    std::byte* norm;       // (H)
    View x;                // (T, H)
    const int32_t* index;  // (rows)
    int64_t rows;
    std::byte* workspace;
  };
  void norm(Ops& ops, Stream& stream, const Norm& args) const;

  // Columns [begin, begin + count) of the logits.
  struct Logits {
    std::byte* table;  // (count, H) rows [begin, begin + count) of the table
    int64_t begin, count;
    int64_t rows;
    View logits;           // (rows, V) fp32
    std::byte* workspace;  // as norm() left it
  };
  void logits(Ops& ops, Stream& stream, const Logits& args) const;

 private:
  struct Work;
  Work carve(std::byte* workspace, int64_t rows) const;

  int64_t hidden_;
  float eps_;
  DType dtype_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace megatrain
