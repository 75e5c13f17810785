#include "megatrain/python/step.h"

#include <string>

#include "megatrain/run/metrics.h"

namespace megatrain {

namespace nb = nanobind;

namespace {

// In the order of the page docs/python.md.
constexpr const char* kNames[] = {"step",    "steps",       "loss",     "tokens_per_s", "norm",
                                  "lr",      "clip_factor", "epoch",    "tokens",       "trained_tokens",
                                  "seconds", "bound_by",    "hbm_peak", "host_peak"};

nb::list names() {
  nb::list list;
  for (const char* name : kNames) list.append(name);
  return list;
}

nb::object item(nb::handle step, const std::string& name) {
  for (const char* known : kNames)
    if (name == known) return nb::getattr(step, known);
  throw nb::key_error(name.c_str());
}

std::string shown(const StepMetrics& m) {
  std::string text = "Step(";
  for (const LogField& field : metrics_fields(m)) text += (text.size() > 5 ? ", " : "") + field.text;
  return text + ")";
}

}  // namespace

void bind_step(nb::module_& module) {
  nb::class_<StepMetrics>(module, "Step")
      .def_ro("step", &StepMetrics::step)
      .def_ro("steps", &StepMetrics::steps)
      .def_prop_ro("loss", [](const StepMetrics& m) { return m.report.loss; })
      .def_prop_ro("tokens_per_s",
                   [](const StepMetrics& m) { return static_cast<double>(m.report.tokens) / m.report.seconds; })
      .def_prop_ro("norm", [](const StepMetrics& m) { return m.report.grad_norm; })
      .def_ro("lr", &StepMetrics::lr)
      .def_prop_ro("clip_factor", [](const StepMetrics& m) { return m.report.clip_factor; })
      .def_ro("epoch", &StepMetrics::epoch)
      .def_prop_ro("tokens", [](const StepMetrics& m) { return m.report.tokens; })
      .def_prop_ro("trained_tokens", [](const StepMetrics& m) { return m.report.trained_tokens; })
      .def_prop_ro("seconds", [](const StepMetrics& m) { return m.report.seconds; })
      .def_prop_ro("bound_by", [](const StepMetrics& m) { return m.report.bound_by(); })
      .def_ro("hbm_peak", &StepMetrics::hbm_peak)
      .def_ro("host_peak", &StepMetrics::host_peak)
      .def("keys", [](const StepMetrics&) { return names(); })
      .def("__getitem__", &item)
      .def("__repr__", &shown);
}

}  // namespace megatrain
