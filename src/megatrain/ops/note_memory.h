// Device memory for noted calls, so that a single call can be run and timed. Operands are random: zeros would run
// faster.
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/base/bf16.h"
#include "megatrain/device/device.h"
#include "megatrain/ops/op_note.h"

namespace megatrain {

class NoteMemory {
 public:
  NoteMemory(Device& device, Stream& stream);

  // The same call on memory of this object, freshly filled. Every address keeps its alignment. Valid until the next
  // place(). The stream is idle on return.
  OpNote place(const OpNote& note);

 private:
  void fill(int64_t bytes);

  Device& device_;
  Stream& stream_;
  std::vector<bf16> pattern_;  // two adjacent ones read as fp32 are a small number as well
  Buffer arena_;
  std::vector<int32_t> document_begin_;  // host copy for the placed attention call
};

}  // namespace megatrain
