#include "megatrain/report/svg_lanes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/report/html.h"
#include "megatrain/report/svg_axis.h"

namespace megatrain {

namespace {

constexpr double kLeft = 74, kTop = 4, kRow = 30, kBar = 20, kBottom = 30;  // kLeft is the page's padding, too

// What an action is for; the page has a colour for each.
struct Purpose {
  const char* style;
  const char* name;
  std::array<const char*, 8> actions;
};
constexpr Purpose kPurposes[] = {
    // "embed …" is from logs of older versions, in which the embedding was not a phase like others.
    {"forward", "forward", {"block forward", "embed forward"}},
    {"head", "head and loss", {"head", "finish losses"}},
    {"backward", "backward", {"block backward", "embed backward"}},
    {"update", "optimizer update", {"update", "update on device"}},
    {"weights", "weights and inputs", {"fetch weights", "fetch rows", "fetch inputs", "gather rows", "stage weights"}},
    {"gradients",
     "gradients on their way",
     {"offload gradient", "collect gradient", "store gradient", "fetch gradient"}},
    {"activations",
     "activations",
     {"fetch activations", "offload activations", "read activations", "store activations",
      // Names in logs of older versions.
      "fetch boundary", "offload boundary", "read boundary", "store boundary"}},
    {"state", "state on its way", {"fetch state", "return state", "fetch moments", "return moments"}},
    {"other", "norms, reports", {}},
};

const Purpose& purpose_of(const std::string& action) {
  for (const Purpose& purpose : kPurposes) {
    for (const char* name : purpose.actions) {
      if (name && action == name) return purpose;
    }
  }
  return kPurposes[std::size(kPurposes) - 1];
}

struct Box {
  const Purpose* purpose;
  double start_s, end_s;
  int64_t count;
  const LaneSpan* first;
};

// Merges neighbours of one purpose into one box if the gap between them and one of the two are shorter than `near_s`.
std::vector<Box> boxes_of(const std::vector<LaneSpan>& spans, double near_s) {
  std::vector<Box> boxes;
  for (const LaneSpan& span : spans) {
    const Purpose* purpose = &purpose_of(span.action);
    if (!boxes.empty()) {
      Box& last = boxes.back();
      const bool narrow = span.end_s - span.start_s < near_s || last.end_s - last.start_s < near_s;
      if (last.purpose == purpose && narrow && span.start_s - last.end_s < near_s) {
        last.end_s = std::max(last.end_s, span.end_s);
        last.count += span.count;
        continue;
      }
    }
    boxes.push_back({purpose, span.start_s, span.end_s, span.count, &span});
  }
  return boxes;
}

std::string duration(double seconds) {
  return seconds >= 1      ? format_seconds(seconds)
         : seconds >= 1e-3 ? fmt::format("{:.3g} ms", seconds * 1e3)
                           : fmt::format("{:.3g} us", seconds * 1e6);
}

std::string describe(const Box& box) {
  std::string text = box.count == 1 ? box.first->action : fmt::format("{} x {}", box.count, box.purpose->name);
  if (box.count == 1 && box.first->layer >= 0) {
    if (!box.first->experts.empty()) text += " of " + box.first->experts;
    text += fmt::format(" of layer {}", box.first->layer);
  }
  return fmt::format("{}: {}, at {}", text, duration(box.end_s - box.start_s), duration(box.start_s));
}

std::string legend(const LaneTracks& tracks) {
  std::set<const Purpose*> used;
  for (const LaneTracks::Lane& lane : tracks.lanes) {
    for (const LaneSpan& span : lane.spans) used.insert(&purpose_of(span.action));
  }
  std::string text;
  for (const Purpose& purpose : kPurposes) {
    if (used.count(&purpose))
      text += fmt::format("<span class=\"key\"><i class=\"box {}\"></i>{}</span>", purpose.style, purpose.name);
  }
  return text;
}

}  // namespace

namespace {

void put_in_order(LaneTracks& tracks) {
  for (LaneTracks::Lane& lane : tracks.lanes) {
    std::stable_sort(lane.spans.begin(), lane.spans.end(),
                     [](const LaneSpan& a, const LaneSpan& b) { return a.start_s < b.start_s; });
  }
  // Most runs keep nothing on disk, and no gradient waits on the device.
  std::erase_if(tracks.lanes, [](const LaneTracks::Lane& lane) {
    return lane.spans.empty() &&
           (lane.name.starts_with("disk_") || lane.name.starts_with("visit") || lane.name == "collect");
  });
}

double end_of(const LaneTracks& tracks) {
  double end_s = 0;
  for (const LaneTracks::Lane& lane : tracks.lanes) {
    for (const LaneSpan& span : lane.spans) end_s = std::max(end_s, span.end_s);
  }
  return end_s;
}

double busy_of(const LaneTracks::Lane& lane) {
  double busy_s = 0;
  for (const LaneSpan& span : lane.spans) busy_s += span.end_s - span.start_s;
  return busy_s;
}

}  // namespace

LaneTracks read_lanes(const nlohmann::json& trace, const std::string& where) {
  LaneTracks tracks;
  std::map<int64_t, size_t> lane_of;
  try {
    for (const nlohmann::json& event : trace.at("traceEvents")) {
      const int64_t track = event.at("tid").get<int64_t>();
      if (event.at("ph").get<std::string>() == "M") {
        lane_of[track] = tracks.lanes.size();
        tracks.lanes.push_back({.name = event.at("args").at("name").get<std::string>()});
        continue;
      }
      const nlohmann::json& args = event.at("args");
      if (tracks.step == 0) tracks.step = args.at("step").get<int64_t>();
      if (args.at("step").get<int64_t>() != tracks.step) continue;
      LaneSpan span{.action = event.at("name").get<std::string>(), .layer = args.at("layer").get<int64_t>()};
      if (args.contains("experts")) span.experts = args.at("experts").get<std::string>();
      const std::string place = fmt::format(" {}{}{}", span.layer, span.experts.empty() ? "" : ", ", span.experts);
      if (span.layer >= 0 && span.action.ends_with(place)) span.action.resize(span.action.size() - place.size());
      span.start_s = event.at("ts").get<double>() * 1e-6;
      span.end_s = span.start_s + event.at("dur").get<double>() * 1e-6;
      tracks.lanes.at(lane_of.at(track)).spans.push_back(std::move(span));
    }
  } catch (const std::exception&) {
    fail_input(fmt::format("{} is damaged: expected the lanes of a step; the report omits it", where));
  }
  put_in_order(tracks);
  return tracks;
}

LaneTracks read_live_lanes(const nlohmann::json& live, const std::string& where) {
  LaneTracks tracks;
  try {
    const nlohmann::json& lanes = live.at("lanes");
    tracks.step = lanes.at("step").get<int64_t>();
    const nlohmann::json& floor = live.at("floor");
    if (!floor.is_null()) {
      tracks.floor_s = floor.at("step_s").get<double>();
      tracks.machine = floor.at("machine").get<std::string>();
    }
    for (const nlohmann::json& track : lanes.at("tracks")) {
      LaneTracks::Lane lane{.name = track.at("lane").get<std::string>()};
      if (!floor.is_null()) lane.floor_s = floor.at("lanes").value(lane.name, 0.0);
      for (const nlohmann::json& box : track.at("spans"))
        lane.spans.push_back({.action = box.at(2).get<std::string>(),
                              .layer = box.at(3).get<int64_t>(),
                              .start_s = box.at(0).get<double>(),
                              .end_s = box.at(0).get<double>() + box.at(1).get<double>(),
                              .count = box.at(4).get<int64_t>()});
      tracks.lanes.push_back(std::move(lane));
    }
  } catch (const nlohmann::json::exception&) {
    fail_input(fmt::format("{} has no lanes of a step", where));
  }
  put_in_order(tracks);
  return tracks;
}

namespace {

constexpr double kPixels = 1000;  // distinguishable positions across the page

std::string percent(double seconds, double end_s) { return pixels(100 * seconds / end_s) + "%"; }

std::string draw_lane(const LaneTracks::Lane& lane, double top, double step_s, double end_s,
                      const std::string& machine) {
  std::string text = fmt::format(
      "<text class=\"lane\" x=\"-{}\" y=\"{}\" dy=\".32em\">{}<title>{} busy of {}</title></text>"
      "<text class=\"busy\" x=\"-{}\" y=\"{}\" dy=\".32em\">{:.0f}% busy</text>\n",
      kLeft, pixels(top + kRow / 2 - 5), escape_html(lane.name), duration(busy_of(lane)), duration(step_s), kLeft,
      pixels(top + kRow / 2 + 8), 100 * busy_of(lane) / step_s);
  for (const Box& box : boxes_of(lane.spans, end_s / kPixels)) {
    text += fmt::format(
        "<rect class=\"box {}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}</title></rect>\n",
        box.purpose->style, percent(box.start_s, end_s), pixels(top + (kRow - kBar) / 2),
        percent(std::max(0.4 * end_s / kPixels, box.end_s - box.start_s), end_s), kBar, escape_html(describe(box)));
  }
  if (lane.floor_s > 0)
    text += fmt::format(
        "<rect class=\"floor\" x=\"0\" y=\"{}\" width=\"{}\" height=\"2.5\"><title>least time for this lane&#39;s work "
        "on {}: {}</title></rect>\n",
        pixels(top + (kRow + kBar) / 2 + 1), percent(lane.floor_s, end_s), escape_html(machine),
        duration(lane.floor_s));
  return text;
}

// The floor of the whole step, as a line across all lanes.
std::string draw_floor(const LaneTracks& tracks, double top, double bottom, double end_s) {
  if (!(tracks.floor_s > 0)) return "";
  const std::string at = percent(tracks.floor_s, end_s);
  const bool late = tracks.floor_s > end_s / 2;
  return fmt::format(
      "<line class=\"floor\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/><text class=\"tick\" text-anchor=\"{}\" x=\"{}\" "
      "dx=\"{}\" y=\"{}\">floor {} on {}</text>\n",
      at, at, top - 6, pixels(bottom), late ? "end" : "start", at, late ? -5 : 5, top - 6, duration(tracks.floor_s),
      escape_html(tracks.machine));
}

}  // namespace

std::string svg_lanes(const LaneTracks& tracks) {
  const double step_s = end_of(tracks);
  if (step_s == 0) return "";
  double end_s = std::max(step_s, tracks.floor_s);
  for (const LaneTracks::Lane& lane : tracks.lanes) end_s = std::max(end_s, lane.floor_s);
  const double first = tracks.floor_s > 0 ? 16 : kTop;
  const double bottom = first + kRow * static_cast<double>(tracks.lanes.size());
  std::string text = fmt::format(
      "<figure class=\"lanes\"><figcaption>Lanes of step {}<span class=\"keys\">{}</span></figcaption>\n<svg "
      "class=\"lanes\" role=\"img\" aria-label=\"Lanes of step {}\" height=\"{}\">\n",
      tracks.step, legend(tracks), tracks.step, bottom + kBottom);
  bool fine = false;
  for (const Tick& tick : time_ticks(end_s, 9)) {
    const std::string at = percent(tick.value, end_s);
    text += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/><text class=\"tick{}\" text-anchor=\"middle\" "
        "x=\"{}\" y=\"{}\">{}</text>\n",
        at, at, first, pixels(bottom), fine ? " fine" : "", at, pixels(bottom + 17), tick.label);
    fine = !fine;
  }
  double top = first;
  for (const LaneTracks::Lane& lane : tracks.lanes) {
    text += draw_lane(lane, top, step_s, end_s, tracks.machine);
    top += kRow;
  }
  return text + draw_floor(tracks, first, bottom, end_s) + "</svg></figure>\n";
}

}  // namespace megatrain
