// A plan as JSON, as a hash, and as lines for a person.
#include <algorithm>

#include <fmt/format.h>
#include <xxhash.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/io/json.h"
#include "megatrain/plan/inventory.h"

namespace megatrain {

using nlohmann::json;

namespace {

json tiers_to_json(const std::vector<Tier>& tiers) {
  json list = json::array();
  for (const Tier tier : tiers) list.push_back(tier_name(tier));
  return list;
}

json keeps_to_json(const std::vector<Keep>& keeps) {
  json list = json::array();
  for (const Keep keep : keeps) list.push_back(keep_name(keep));
  return list;
}

// "all 28 blocks on the device", "3 of 28 blocks on the device, 5 on disk, the others in host memory".
std::string places(const std::vector<Tier>& tiers, const char* what) {
  const int64_t all = std::ssize(tiers);
  std::string text;
  for (const auto& [tier, where] : {std::pair{Tier::hbm, "on the device"}, {Tier::disk, "on disk"}}) {
    const int64_t count = std::count(tiers.begin(), tiers.end(), tier);
    if (count == all) return fmt::format("all {} {} {}", all, what, where);
    if (count > 0)
      text += text.empty() ? fmt::format("{} of {} {} {}, ", count, all, what, where)
                           : fmt::format("{} {}, ", count, where);
  }
  return text.empty() ? fmt::format("all {} {} in host memory", all, what) : text + "the others in host memory";
}

// `things`: blocks, or records where a block has several.
std::string weights_text(const Plan& p, const char* things) {
  const int64_t streamed = std::count(p.weights.begin(), p.weights.end(), Tier::host), all = std::ssize(p.weights);
  if (streamed == 0) return fmt::format("all {} {} stay on the device", all, things);
  const std::string through =
      fmt::format("stream through {}{}", counted(p.slots, "slot"), p.serial ? ", serially" : "");
  if (streamed == all) return fmt::format("all {} {} {}", all, things, through);
  return fmt::format("{} of {} {} stay on the device, the others {}", all - streamed, all, things, through);
}

// ", 8 of them in host memory and 2 on disk", where kept outputs of some of so many blocks wait elsewhere than on the
// device.
std::string away_text(const Plan& p, std::ptrdiff_t first, int64_t all) {
  std::string text;
  for (const auto& [tier, where] : {std::pair{Tier::host, "in host memory"}, {Tier::disk, "on disk"}}) {
    const int64_t blocks = std::count(p.outputs.begin() + first, p.outputs.end(), tier);
    if (blocks == 0) continue;
    if (blocks == all) return fmt::format(", all of them {}", where);
    text += text.empty() ? fmt::format(", {} of them {}", blocks, where) : fmt::format(" and {} {}", blocks, where);
  }
  return text;
}

// What backward finds, and recomputes the rest of. `first` is the lowest block with a backward.
std::string kept_text(const Plan& p, std::ptrdiff_t first) {
  std::string text;
  for (const Keep keep : kKeeps) {
    const int64_t blocks = std::count(p.keep.begin() + first, p.keep.end(), keep);
    if (blocks == 0) continue;
    const std::string where = keep == Keep::outputs ? away_text(p, first, blocks) : "";
    if (blocks == std::ssize(p.keep) - first) return fmt::format("{} in every block{}", keep_name(keep), where);
    text += fmt::format("{}{} in {}{}", text.empty() ? "" : ", ", keep_name(keep), counted(blocks, "block"), where);
  }
  return text.empty() ? "nothing: no block has a backward" : text;
}

}  // namespace

std::string describe(StateFormat format) {
  if (format == StateFormat{}) return "state: fp32 moments and master, exact";
  return fmt::format("state: {} moments, {} master: smaller, not exact", moments_name(format.moments),
                     master_name(format.master));
}

std::string describe_parameters(const Workload& w) {
  const std::string all = format_count(w.parameters) + " parameters";
  if (w.active_parameters == w.parameters) return all;
  return all + fmt::format(" ({} active)", format_count(w.active_parameters));
}

std::string experts_of(const Workload& w, int64_t record) {
  if (w.experts == 0 || !w.is_layer_record(record)) return "";
  const std::vector<int64_t>& records = w.phase(w.phase_of(record)).records;
  const int64_t group = std::find(records.begin(), records.end(), record) - records.begin() - 1;
  if (group < 0) return "";  // attention, norms and router
  const int64_t each = w.experts_per_record > 0 ? w.experts_per_record : w.experts;
  if (each >= w.experts) return "experts";
  const int64_t first = group * each + 1, last = std::min(w.experts, (group + 1) * each);
  return first == last ? fmt::format("expert {}", first) : fmt::format("experts {} to {}", first, last);
}

std::string describe_record(const Workload& w, int64_t record) {
  const std::string experts = experts_of(w, record);
  return fmt::format("{}layer {}", experts.empty() ? "" : experts + " of ", w.phase_of(record));
}

json plan_to_json(const Plan& p) {
  json plan = {{"slots", p.slots},
               {"weights", tiers_to_json(p.weights)},
               {"state", tiers_to_json(p.state)},
               {"visits", p.visits},
               {"keep", keeps_to_json(p.keep)},
               {"boundary", tiers_to_json(p.boundary)},
               {"boundary_slots", p.boundary_slots},
               {"sweeps", p.sweeps},
               {"gradient_slabs", p.gradient_slabs},
               {"host_gradient_slabs", p.host_gradient_slabs},
               {"serial", p.serial}};
  if (p.experts_per_record > 0) plan["experts_per_record"] = p.experts_per_record;
  if (p.visit_slots > 0) plan["visit_slots"] = p.visit_slots;
  if (p.boundary_every > 1) plan["boundary_every"] = p.boundary_every;
  if (p.boundary_ring > 0) plan["boundary_ring"] = p.boundary_ring;
  if (p.output_slots > 0) {
    plan["outputs"] = tiers_to_json(p.outputs);
    plan["output_slots"] = p.output_slots;
  }
  if (p.moment_slabs > 0) {
    plan["disk_moments"] = p.disk_moments;
    plan["moment_slabs"] = p.moment_slabs;
  }
  if (p.weight_slabs > 0) {
    plan["disk_weights"] = p.disk_weights;
    plan["weight_slabs"] = p.weight_slabs;
  }
  if (p.gradient_ring > 0) {
    plan["gradients"] = tiers_to_json(p.gradients);
    plan["gradient_ring"] = p.gradient_ring;
  }
  return plan;
}

Plan plan_from_json(const json& object, const std::string& where) {
  const auto bad = [&](const std::string& what) {
    fail_config(fmt::format("{}: {}; expected what 'megatrain plan --json' prints", where, what));
  };
  if (!object.is_object()) bad("the plan is not a JSON object");
  const auto number = [&](const char* key) -> int64_t {
    if (!object.contains(key) || !object[key].is_number_integer()) bad(fmt::format("'{}' must be an integer", key));
    return object[key].get<int64_t>();
  };
  const auto tiers = [&](const char* key, bool disk = false) {
    const char* names = disk ? "\"hbm\", \"host\" or \"disk\"" : "\"hbm\" or \"host\"";
    std::vector<Tier> list;
    if (!object.contains(key) || !object[key].is_array()) bad(fmt::format("'{}' must be a list of {}", key, names));
    for (const json& item : object[key]) {
      if (item != "hbm" && item != "host" && !(disk && item == "disk"))
        bad(fmt::format("'{}' holds {}, not {}", key, item.dump(), names));
      list.push_back(item == "hbm" ? Tier::hbm : item == "host" ? Tier::host : Tier::disk);
    }
    return list;
  };
  Plan p;
  if (object.contains("experts_per_record")) p.experts_per_record = number("experts_per_record");
  p.slots = number("slots");
  p.weights = tiers("weights");
  p.state = tiers("state");
  const auto flags = [&](const std::string& key) {
    const auto refuse = [&] { bad(fmt::format("'{}' must be a list of true and false", key)); };
    std::vector<bool> list;
    if (!object.contains(key) || !object[key].is_array()) refuse();
    for (const json& flag : object[key]) {
      if (!flag.is_boolean()) refuse();
      list.push_back(flag.get<bool>());
    }
    return list;
  };
  p.visits = flags("visits");
  if (object.contains("visit_slots")) p.visit_slots = number("visit_slots");
  if (!object.contains("keep") || !object["keep"].is_array()) bad("'keep' must be a list of names");
  for (const json& name : object["keep"]) {
    const auto found = std::find_if(kKeeps.begin(), kKeeps.end(), [&](Keep keep) { return name == keep_name(keep); });
    if (found == kKeeps.end())
      bad(fmt::format("'keep' holds {}, not \"nothing\", \"outputs\", \"attention\", \"products\" or \"everything\"",
                      name.dump()));
    p.keep.push_back(*found);
  }
  p.boundary = tiers("boundary", true);
  p.outputs.assign(p.keep.size(), Tier::hbm);
  if (object.contains("outputs") || object.contains("output_slots")) {  // all wait on the device otherwise
    p.outputs = tiers("outputs", true);
    p.output_slots = number("output_slots");
  }
  if (p.activations_on_disk() || object.contains("boundary_ring")) p.boundary_ring = number("boundary_ring");
  if (object.contains("boundary_every")) p.boundary_every = number("boundary_every");
  p.boundary_slots = number("boundary_slots");
  p.disk_moments.assign(p.state.size(), false);
  if (object.contains("disk_moments") || object.contains("moment_slabs")) {  // none are on disk otherwise
    p.disk_moments = flags("disk_moments");
    p.moment_slabs = number("moment_slabs");
  }
  p.disk_weights.assign(p.state.size(), false);
  if (object.contains("disk_weights") || object.contains("weight_slabs")) {
    p.disk_weights = flags("disk_weights");
    p.weight_slabs = number("weight_slabs");
  }
  p.gradients.assign(p.state.size(), Tier::host);
  if (object.contains("gradients") || object.contains("gradient_ring")) {  // all wait in host memory otherwise
    p.gradients = tiers("gradients", true);
    p.gradient_ring = number("gradient_ring");
  }
  if (!object.contains("sweeps") || !object["sweeps"].is_array()) bad("'sweeps' must be a list of integers");
  for (const json& width : object["sweeps"]) {
    if (!width.is_number_integer()) bad("'sweeps' must be a list of integers");
    p.sweeps.push_back(width.get<int64_t>());
  }
  p.gradient_slabs = number("gradient_slabs");
  p.host_gradient_slabs = number("host_gradient_slabs");
  if (!object.contains("serial") || !object["serial"].is_boolean()) bad("'serial' must be true or false");
  p.serial = object["serial"].get<bool>();
  return p;
}

std::string plan_hash(const Plan& plan) {
  const std::string text = plan_to_json(plan).dump();
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

std::string explain(const Workload& w, const Plan& p, const Estimate& e) {
  const MemoryNeed need = memory_need(w, p);
  std::string text;
  text += fmt::format("{} in {}; {} tokens a step in {} of {}\n", describe_parameters(w),
                      counted(w.layer_phases(), "block"), w.tokens(),
                      counted(w.micro_batches, "micro-batch", "micro-batches"), w.micro_tokens);
  if (w.trained_parameters < w.parameters)
    text += fmt::format("{} of them are trained, the others frozen\n", format_count(w.trained_parameters));
  const bool several = w.layer_records() > w.layer_phases();  // records in some block
  const char* things = several ? "records" : "blocks";
  if (several) {
    text += fmt::format("{} records: {} of experts, the others of a block's attention, norms and router\n",
                        w.layer_records(), w.layer_records() - w.layer_phases());
  }
  text += fmt::format("weights: {}\n", weights_text(p, things));
  const char* all_things = several ? things : "layers";  // embedding and head too
  text += fmt::format("optimizer state: {}\n", places(p.state, all_things));
  if (const int64_t visitors = std::count(p.visits.begin(), p.visits.end(), true))
    text += fmt::format("visits: the state of {} {} comes to the device to be updated{}\n", visitors, things,
                        p.visit_slots > 0 ? ", through " + counted(p.visit_slots, "slot") : "");
  if (const int64_t on_disk = std::count(p.disk_moments.begin(), p.disk_moments.end(), true))
    text += fmt::format("moments of {} {}: on disk, through {} slabs of host memory\n", on_disk, all_things,
                        p.moment_slabs);
  if (const int64_t on_disk = std::count(p.disk_weights.begin(), p.disk_weights.end(), true))
    text += fmt::format("weights of {} {}: on disk too, through {} slabs\n", on_disk, all_things, p.weight_slabs);
  for (const auto& [tier, where] :
       {std::pair{Tier::hbm, "on the device, where the blocks' inputs were"}, {Tier::disk, "on disk"}}) {
    if (const int64_t count = std::count(p.gradients.begin(), p.gradients.end(), tier))
      text += fmt::format("gradients of {} {}: wait for the norm {}\n", count, all_things, where);
  }
  const auto passed = static_cast<std::ptrdiff_t>(std::max<int64_t>(0, w.first_trained_phase() - 1));
  if (passed > 0)
    text += fmt::format("backward stops above the first {}: what is below is frozen\n",
                        passed == 1 ? "block" : counted(passed, "block"));
  text += fmt::format("kept for backward: {}\n", kept_text(p, passed));
  if (passed < std::ssize(p.boundary)) {
    text += fmt::format("block inputs: {}", places({p.boundary.begin() + passed, p.boundary.end()}, "blocks'"));
    if (p.boundary_every > 1)
      text += fmt::format("; of every {} one waits and the others are computed again from it", p.boundary_every);
    text += "\n";
  }
  text +=
      p.sweeps.size() == 1
          ? "sweeps: 1, a fetched block serves all micro-batches\n"
          : fmt::format("sweeps: {}, of at most {}\n", p.sweeps.size(),
                        counted(*std::max_element(p.sweeps.begin(), p.sweeps.end()), "micro-batch", "micro-batches"));
  for (const auto& [title, bytes, total] : {std::tuple{"device memory", &need.hbm, need.hbm_bytes()},
                                            {"host memory", &need.host, need.host_bytes()},
                                            {"disk", &need.disk, need.disk_bytes()}}) {
    if (total > 0) text += fmt::format("{}: {}\n", title, format_bytes(total));
    for (size_t kind = 0; kind < bytes->size(); ++kind) {
      if ((*bytes)[kind] > 0)
        text += fmt::format("  {:<30}{:>12}\n", resource_name(static_cast<ResourceKind>(kind)),
                            format_bytes((*bytes)[kind]));
    }
  }
  text += fmt::format("estimated step: {}, bound by {} (compute {}, h2d {}, d2h {}, update {}{})\n",
                      format_seconds(e.step_s), e.bound_by, format_seconds(e.compute_s), format_seconds(e.h2d_s),
                      format_seconds(e.d2h_s), format_seconds(e.update_s),
                      e.disk_read_s > 0 ? fmt::format(", disk read {}, disk write {}", format_seconds(e.disk_read_s),
                                                      format_seconds(e.disk_write_s))
                                        : "");
  return text;
}

}  // namespace megatrain
