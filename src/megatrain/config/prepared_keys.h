// Keys that a prepared set answers: its prepared.json says what data.tokens is.
#pragma once

#include "megatrain/config/given_keys.h"

namespace megatrain {

// Where data.tokens is a file that `prepare --out` wrote, data.dtype, data.labels, data.documents and seq_len that are
// not given become what the prepared.json beside it says; a null that is given means none. A version 1 prepared.json
// says nothing about them: data.dtype has to be given then, and labels and documents that are not given get a warning.
// Throws Error(bad_config) for a key that contradicts prepared.json, and Error(bad_input) for a damaged one.
void settle_prepared_keys(TrainConfig& config, const GivenKeys& given);

}  // namespace megatrain
