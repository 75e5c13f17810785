// What a DeepSpeed configuration beside a trainer's file says of the run itself.
#pragma once

#include "megatrain/foreign/reader.h"

namespace megatrain {

// Of `deepspeed`, a JSON file or a mapping: where state lives is the plan's matter, but an optimizer, a scheduler,
// clipping, batches, precision and methods decide the run. The Hugging Face trainer refuses those that differ from its
// own keys, unless they are "auto"; so does this, and a scheduler in any case, which would stand above lr_scheduler. A
// file that is not there says nothing. `micro_batch` is the trainer's key for samples of one pass, `standard` its
// default.
void check_deepspeed(ForeignReader& reader, const char* micro_batch, int64_t standard);

}  // namespace megatrain
