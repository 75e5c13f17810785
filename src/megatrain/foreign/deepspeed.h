// Checks what a DeepSpeed configuration, referenced by a trainer's file, says about the run itself.
#pragma once

#include "megatrain/foreign/reader.h"

namespace megatrain {

// Checks `deepspeed`, a JSON file or a mapping. Where state lives is up to the plan, but optimizer, scheduler,
// clipping, batch sizes, precision and methods affect the run. Like the Hugging Face trainer, this refuses values that
// differ from the trainer's own keys, unless they are "auto". A scheduler is always refused, because it would override
// lr_scheduler. A missing file is accepted. `micro_batch` is the trainer's key for the samples of one pass, `standard`
// its default.
void check_deepspeed(ForeignReader& reader, const char* micro_batch, int64_t standard);

}  // namespace megatrain
