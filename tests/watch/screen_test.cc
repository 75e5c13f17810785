#include "megatrain/watch/screen.h"

#include "megatrain/watch/braille.h"
#include "tests/watch/made_run.h"

namespace megatrain {

namespace {

std::string joined(const Names& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

nlohmann::json with_lanes() {
  return nlohmann::json::parse(
      R"({"floor": {"machine": "a machine", "measured": true, "step_s": 0.2, "lanes": {"compute": 0.2}},
    "lanes": {"step": 7, "seconds": 0.5, "tracks": [
      {"lane": "compute", "busy_s": 0.5, "spans": [[0, 0.25, "block forward", -1, 4], [0.25, 0.25, "block backward", 2, 1]]},
      {"lane": "h2d", "busy_s": 0.1, "spans": [[0, 0.1, "fetch weights", 1, 1]]}]},
    "running": "compute is in block forward of layer 3"})");
}

}  // namespace

TEST(Braille, DotsStandWhereTheyAreDrawn) {
  BrailleCanvas canvas(2, 1);
  EXPECT_EQ(canvas.cell(0, 0), " ");
  canvas.dot(0, 0, 1);
  canvas.dot(3, 3, 2);
  canvas.dot(4, 0, 3);   // outside
  canvas.dot(0, -1, 3);  // outside
  EXPECT_EQ(canvas.cell(0, 0), "⠁");
  EXPECT_EQ(canvas.cell(1, 0), "⢀");
  EXPECT_EQ(canvas.rank(0, 0), 1);
  EXPECT_EQ(canvas.rank(1, 0), 2);
}

TEST(Braille, ACurveHasNoGaps) {
  BrailleCanvas canvas(4, 2);
  canvas.curve({{0, 7}, {7, 0}}, 1);
  EXPECT_EQ(canvas.cell(0, 1) + canvas.cell(1, 1) + canvas.cell(2, 0) + canvas.cell(3, 0), "⣠⠞⣠⠞");
  BrailleCanvas steep(1, 3);
  steep.curve({{0, 0}, {0.2, 11}}, 1);
  for (int row = 0; row < 3; ++row) EXPECT_EQ(steep.cell(0, row), "⡇");
  BrailleCanvas outside(2, 2);
  outside.curve({{-1e12, -1e12}, {1e12, 1e12}}, 1);  // must return
}

TEST(Screen, FitsEveryWidthAndHeightAndSaysTheSameWithoutColour) {
  const MadeRun made;
  made.live(100, "running", ::getpid(), with_lanes());
  write_bytes(made.path() + "/memory.json", R"({"hbm": {"weights": 1048576}, "host": {"moments": 4194304}})");
  for (int64_t step = 1; step <= 60; ++step) made.step(step, 4.0 / static_cast<double>(step));
  RunFollower run(made.path());
  run.poll(101);
  for (const bool colour : {false, true}) {
    for (const auto& [width, height] :
         {std::pair{20, 4}, {40, 10}, {80, 24}, {200, 60}, {61, 13}, {10, 24}, {10, 3}, {1, 1}}) {
      const Names lines = screen(run, {"the loss jumped", "\x1b[2Jbad"}, {.colour = colour}, width, height, 0, 2);
      EXPECT_LE(lines.size(), static_cast<size_t>(height));
      for (const std::string& line : lines) EXPECT_LE(columns_of(line), width) << line;
      EXPECT_EQ(joined(lines).find('\x1b') != std::string::npos, colour);
      EXPECT_EQ(joined(lines).find("\x1b[2J"), std::string::npos);
    }
  }
  const std::string text = joined(screen(run, {"the loss jumped"}, {.colour = false}, 120, 40, 0, 2));
  for (const char* part :
       {"step 60 of 100 (60%)", "ETA 20s", "loss 0.0667", "1/2", "! the loss jumped", "lanes of step 7", "floor 0.2 s",
        "compute", "100%", "now: compute is in block forward", "memory", "Device", "r next run"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(Screen, AnAbsurdLossDoesNotFlattenTheCurve) {
  const MadeRun made;
  made.live(100);
  for (int64_t step = 1; step <= 60; ++step) made.step(step, step == 30 ? -1e308 : 4.0 / static_cast<double>(step));
  RunFollower run(made.path());
  run.poll(101);
  const Names lines = screen(run, {}, {.smooth = false, .colour = false}, 80, 24, 0, 1);
  for (const std::string& line : lines) EXPECT_EQ(line.find("000000000"), std::string::npos) << line;
  const MadeRun few;
  few.live(100);
  few.step(1, 4);
  few.step(2, -1e308);
  RunFollower two(few.path());
  two.poll(101);
  for (const std::string& line : screen(two, {}, {.colour = false}, 80, 24, 0, 1))
    EXPECT_EQ(line.substr(0, line.find("loss")).find("000000000"), std::string::npos) << line;
}

TEST(Screen, EveryCurveAndAxisCanBeShown) {
  const MadeRun made;
  made.live(100);
  for (int64_t step = 1; step <= 30; ++step) made.step(step, 4.0 - 0.1 * static_cast<double>(step));
  RunFollower run(made.path());
  run.poll(101);
  Names seen;
  for (const CurveMetric metric :
       {CurveMetric::loss, CurveMetric::grad_norm, CurveMetric::lr, CurveMetric::tokens_per_s, CurveMetric::seconds}) {
    for (const CurveAxis axis : {CurveAxis::steps, CurveAxis::tokens, CurveAxis::time}) {
      for (const bool logarithmic : {false, true}) {
        const Names lines = screen(
            run, {}, {.metric = metric, .axis = axis, .logarithmic = logarithmic, .colour = false}, 100, 30, 0, 1);
        EXPECT_NE(joined(lines).find("\xe2\xa0"), std::string::npos) << "no dots";
        seen.push_back(joined(lines));
      }
    }
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end()) << "each looks different";
}

TEST(Screen, OfARunThatIsNotThereSaysSo) {
  RunFollower run("/nowhere/at/all");
  run.poll(1);
  EXPECT_NE(joined(screen(run, {}, {.colour = false}, 80, 24, 0, 1)).find("waiting for the run"), std::string::npos);
}

TEST(Screen, OfARunThatIsNoLongerThereShowsWhatWasRead) {
  const MadeRun made;
  made.live(100);
  for (int64_t step = 1; step <= 3; ++step) made.step(step, 4);
  RunFollower run(made.path());
  run.poll(101);
  std::filesystem::remove_all(made.path());
  run.poll(102);
  const std::string text = joined(screen(run, {}, {.colour = false}, 80, 24, 0, 1));
  EXPECT_NE(text.find("no longer there"), std::string::npos) << text;
  EXPECT_NE(text.find("step 3 of 100"), std::string::npos) << text;
}

TEST(Text, IsCutByColumnsAndColoursEnd) {
  EXPECT_EQ(columns_of("\x1b[31m⠁é\x1b[0mx"), 3);
  EXPECT_EQ(cut_to("\x1b[31m⠁é\x1b[0mx", 1), "\x1b[31m⠁\x1b[0m");
  EXPECT_EQ(cut_to("abc", 2), "ab");
  EXPECT_EQ(cut_to("abc", 3), "abc");
}

}  // namespace megatrain
