#include "megatrain/run/metrics.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "megatrain/base/units.h"

namespace megatrain {

namespace {

// The figures of an MoE model as an object of their own. Auxiliary losses are included if they are trained.
std::string router_json(const std::optional<RouterFigures>& router) {
  if (!router) return "";
  std::string text = fmt::format("\"experts\":{{\"imbalance\":{:.17g},\"imbalance_max\":{:.17g},\"used\":{:.17g}",
                                 router->imbalance, router->worst_imbalance, router->used);
  if (router->aux_loss) text += fmt::format(",\"aux_loss\":{:.17g}", *router->aux_loss);
  if (router->z_loss) text += fmt::format(",\"z_loss\":{:.17g}", *router->z_loss);
  return text + "},";
}

}  // namespace

std::string metrics_json(const StepMetrics& m) {
  const StepReport& r = m.report;
  std::string lanes;
  for (int i = 0; i < kLanes; ++i) {
    const double busy = r.lanes.busy[static_cast<size_t>(i)];
    lanes += fmt::format("{}\"{}\":{{\"busy_s\":{:.17g},\"wait_s\":{:.17g}}}", i ? "," : "",
                         lane_name(static_cast<Lane>(i)), busy, std::max(0.0, r.seconds - busy));
  }
  return fmt::format(
      "{{\"step\":{},\"steps\":{},{}\"loss\":{:.17g},\"grad_norm\":{:.17g},\"clip_factor\":{:.17g},\"lr\":{:.17g},{}"
      "\"tokens\":{},"
      "\"trained_tokens\":{},"
      "\"seconds\":{:.17g},\"paused_s\":{:.17g},\"tokens_per_s\":{:.17g},\"bound_by\":\"{}\",\"stall\":{{\"seconds\":{:"
      ".17g},\"for\":\"{}\"}"
      "},\"lanes\":{{{}}},"
      "\"bytes\":{{\"h2d\":{},\"d2h\":{},\"disk_read\":{},\"disk_write\":{}}},\"hbm_peak\":{},\"host_peak\":{}}}",
      m.step, m.steps, m.epoch > 0 ? fmt::format("\"epoch\":{:.17g},", m.epoch) : "", r.loss, r.grad_norm,
      r.clip_factor, m.lr, router_json(r.router), r.tokens, r.trained_tokens, r.seconds, r.paused_s,
      static_cast<double>(r.tokens) / r.seconds, r.bound_by(), r.stall.seconds, r.stall.cause, lanes, r.h2d_bytes,
      r.d2h_bytes, r.disk_read_bytes, r.disk_write_bytes, m.hbm_peak, m.host_peak);
}

std::vector<LogField> metrics_fields(const StepMetrics& m, const std::string& left) {
  const StepReport& r = m.report;
  std::vector<LogField> fields;
  const auto add = [&](std::string text, LogColour colour = LogColour::dim) {
    fields.push_back({.text = std::move(text), .colour = colour});
  };
  add(fmt::format("step {}/{} {}%", m.step, m.steps, 100 * m.step / std::max<int64_t>(m.steps, 1)), LogColour::bold);
  if (!left.empty()) add("ETA " + left, LogColour::plain);
  add(fmt::format("loss {:.4f}", r.loss), LogColour::green);
  add(format_count(std::llround(static_cast<double>(r.tokens) / r.seconds)) + " tokens/s", LogColour::plain);
  if (m.epoch > 0) add(fmt::format("epoch {:.2f}", m.epoch), LogColour::plain);
  add(fmt::format("norm {:.3g}", r.grad_norm));
  add(fmt::format("lr {:.3g}", m.lr));
  add(format_seconds(r.seconds));
  if (const auto& router = r.router) {
    if (router->aux_loss) add(fmt::format("aux {:.4g}", *router->aux_loss));
    if (router->z_loss) add(fmt::format("z {:.4g}", *router->z_loss));
    add(fmt::format("imbalance {:.2f} (most {:.2f}), {:.3g}% of experts used", router->imbalance,
                    router->worst_imbalance, 100 * router->used));
  }
  std::string waits;
  if (r.paused_s >= 0.05 * r.seconds)
    waits = fmt::format(", after {:.2g} s for {}", r.paused_s, r.paused_for);
  else if (r.stall.seconds >= 0.005 * r.seconds)
    waits = fmt::format(", longest wait {:.2g} s for {}", r.stall.seconds, r.stall.cause);
  add(fmt::format("bound by {} (compute {:.0f}% busy{})", r.bound_by(),
                  100 * r.lanes.busy[static_cast<size_t>(Lane::compute)] / std::max(r.own_seconds(), 1e-9), waits));
  return fields;
}

}  // namespace megatrain
