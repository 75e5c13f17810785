#include "megatrain/python/train.h"

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "megatrain/base/error.h"
#include "megatrain/config/run_config.h"
#include "megatrain/io/json_text.h"
#include "megatrain/python/interrupt.h"
#include "megatrain/run/result_json.h"
#include "megatrain/run/run.h"

namespace megatrain {

namespace nb = nanobind;

namespace {

// Calls Python after each step, with the GIL. The first exception stops the run as ctrl-C does.
class StepCaller {
 public:
  StepCaller(nb::handle on_step, Interrupt& interrupt) : on_step_(on_step), interrupt_(interrupt) {}

  void operator()(const StepMetrics& metrics) {
    if (thrown_) return;
    const nb::gil_scoped_acquire held;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();  // handlers of other signals than SIGINT
      if (!on_step_.is_none()) on_step_(metrics);
    } catch (const std::exception&) {
      thrown_ = std::current_exception();
      interrupt_.ask();
    }
  }

  std::exception_ptr thrown() const { return thrown_; }

 private:
  nb::handle on_step_;
  Interrupt& interrupt_;
  std::exception_ptr thrown_;
};

// A run that hangs cannot be left: its lanes use what would be freed. So the process ends, as the program does.
[[noreturn]] void end_stalled(const std::string& why) {
  std::fprintf(stderr, "megatrain: %s\n", why.c_str());
  std::_Exit(static_cast<int>(ExitCode::stalled));
}

}  // namespace

std::string train_for_python(const std::string& name, const std::optional<std::string>& text,
                             const std::vector<std::string>& overrides, const nb::object& on_step,
                             bool takes_interrupts) {
  Interrupt interrupt(takes_interrupts,
                      "\nmegatrain: interrupted: finishing the step; the run then saves a checkpoint and stops\n");
  StepCaller caller(on_step, interrupt);
  RunHooks hooks{.on_step = [&](const StepMetrics& metrics) { caller(metrics); },
                 .stop = interrupt.stop(),
                 .take_save_wish = {},
                 .on_stall = end_stalled};
  RunResult result;
  {
    const nb::gil_scoped_release released;
    const TrainConfig config = text ? parse_run_config(*text, name, overrides) : load_run_config(name, overrides);
    result = run_training(config, hooks);
  }
  if (caller.thrown()) std::rethrow_exception(caller.thrown());
  if (result.stopped_by != 0) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    throw nb::python_error();
  }
  return json_text(to_json(result));
}

}  // namespace megatrain
