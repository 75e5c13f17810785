// The result of a run as scripts get it.
#pragma once

#include "megatrain/io/json.h"
#include "megatrain/run/run.h"

namespace megatrain {

// docs/reference/cli.md, "train".
nlohmann::json to_json(const RunResult& result);

}  // namespace megatrain
