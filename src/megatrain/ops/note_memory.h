// Device memory for noted calls, so that one can be made alone and timed. Operands are random: zeros would run faster.
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

  // The same call on memory of this object, freshly filled, every address with its old alignment. Holds until the next
  // place(); the stream is idle on return.
  OpNote place(const OpNote& note);

 private:
  void fill(int64_t bytes);

  Device& device_;
  Stream& stream_;
  std::vector<bf16> pattern_;  // two of them read as an fp32 are a small number as well
  Buffer arena_;
  std::vector<int32_t> document_begin_;  // of the placed attention, on the host
};

}  // namespace megatrain
