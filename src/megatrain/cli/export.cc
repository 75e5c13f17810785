#include <fmt/format.h>

#include "megatrain/cli/verbs.h"
#include "megatrain/config/arguments.h"
#include "megatrain/inference/export_model.h"
#include "megatrain/io/json_text.h"

namespace megatrain {

int verb_export(const Arguments& arguments) {
  const ExportQuestion question{.from = arguments.one("RUN or CHECKPOINT"),
                                .out = arguments.option("--out").value_or(""),
                                .dtype = arguments.option("--dtype"),
                                .gguf = arguments.option("--gguf"),
                                .adapter = arguments.flag("--adapter")};
  const nlohmann::json done = export_model(question);
  fmt::print("{}\n", arguments.json() ? json_text(done) : question.out);
  return 0;
}

}  // namespace megatrain
