// megatrain._core: what the Python package calls. The package (megatrain/__init__.py) has the names, types and
// docstrings for people; here values are plain, and structured results are JSON.
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/advice/plan_answer.h"
#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/shortage.h"
#include "megatrain/base/version.h"
#include "megatrain/config/run_config.h"
#include "megatrain/inference/export_model.h"
#include "megatrain/io/json_text.h"
#include "megatrain/python/bound_model.h"
#include "megatrain/python/nanobind.h"
#include "megatrain/python/step.h"
#include "megatrain/python/train.h"
#include "megatrain/train/target.h"

namespace megatrain {

namespace nb = nanobind;

namespace {

using Text = std::optional<std::string>;

// Library errors become megatrain.Error, as the program would print them and with its exit code.
void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    const Error said = as_error(error);
    const nb::object type = nb::module_::import_("megatrain._error").attr("Error");
    const nb::object value = type(said.what(), static_cast<int>(said.code()));
    PyErr_SetObject(type.ptr(), value.ptr());
  }
}

// `text`: of a configuration. Otherwise `name` is that of a configuration or a model.
Target target_for(const std::string& name, const Text& text, const std::vector<std::string>& overrides,
                  std::optional<int64_t> layers) {
  if (!text) return read_target(name, overrides, layers);
  return target_of(parse_run_config(*text, name, overrides, {.model = true, .data = false, .steps = false}), layers);
}

std::string plan(const std::string& name, const Text& text, const std::vector<std::string>& overrides,
                 std::optional<int64_t> layers, std::optional<int64_t> seed, std::optional<double> price,
                 const Text& machine, const Text& ram, const Text& disk) {
  const nb::gil_scoped_release released;
  return json_text(to_json(answer_plan({.target = target_for(name, text, overrides, layers),
                                        .machine = {.name = machine, .ram = ram, .disk = disk},
                                        .seed = seed,
                                        .price = price,
                                        .run_dir_is_known = text || names_configuration(name)})));
}

std::string export_any(const std::string& from, const std::string& out, const Text& dtype, const Text& gguf,
                       bool adapter) {
  const nb::gil_scoped_release released;
  return json_text(export_model({.from = from, .out = out, .dtype = dtype, .gguf = gguf, .adapter = adapter}));
}

}  // namespace
}  // namespace megatrain

NB_MODULE(MEGATRAIN_MODULE, module) {
  using namespace megatrain;
  nb::register_exception_translator(translate);
  bind_step(module);
  bind_model(module);
  module.def("train", &train_for_python, nb::arg("name"), nb::arg("text").none(), nb::arg("overrides"),
             nb::arg("on_step").none(), nb::arg("takes_interrupts"));
  module.def("plan", &plan, nb::arg("name"), nb::arg("text").none(), nb::arg("overrides"), nb::arg("layers").none(),
             nb::arg("seed").none(), nb::arg("price").none(), nb::arg("machine").none(), nb::arg("ram").none(),
             nb::arg("disk").none());
  module.def("export", &export_any, nb::arg("from_"), nb::arg("out"), nb::arg("dtype").none(), nb::arg("gguf").none(),
             nb::arg("adapter"));
  module.def("quiet", &set_log_quiet);
  module.attr("version") = kVersion;
}
