// Keys that a prepared set fills in: its prepared.json describes data.tokens.
#pragma once

#include "megatrain/config/given_keys.h"

namespace megatrain {

// If data.tokens is a file written by `prepare --out`, prepared.json supplies data.dtype, data.labels, data.documents
// and seq_len unless they are given; an explicit null means none. A version 1 prepared.json does not have them:
// data.dtype must be given then, and missing labels and documents get a warning. Throws Error(bad_config) for a key
// that contradicts prepared.json, and Error(bad_input) if that is damaged.
void settle_prepared_keys(TrainConfig& config, const GivenKeys& given);

}  // namespace megatrain
