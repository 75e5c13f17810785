// The elements of charts: ticks, scales, thinned and smoothed curves.
#include <gtest/gtest.h>

#include <cmath>

#include "megatrain/report/svg_axis.h"
#include "megatrain/report/svg_chart.h"
#include "megatrain/report/svg_lanes.h"
#include "megatrain/report/usual_range.h"

namespace megatrain {

namespace {

std::vector<std::string> labels(const std::vector<Tick>& ticks) {
  std::vector<std::string> text;
  for (const Tick& tick : ticks) text.push_back(tick.label);
  return text;
}
using Labels = std::vector<std::string>;

}  // namespace

TEST(Ticks, AreRoundAndTellNeighboursApart) {
  EXPECT_EQ(labels(linear_ticks(0, 10, 5)), (Labels{"0", "2", "4", "6", "8", "10"}));
  EXPECT_EQ(labels(linear_ticks(1.91, 2.09, 4)), (Labels{"1.95", "2.00", "2.05"}));
  EXPECT_EQ(labels(linear_ticks(0, 3e-5, 3)), (Labels{"0", "1e-5", "2e-5", "3e-5"}));
  EXPECT_EQ(labels(linear_ticks(0, 1e-5, 4)), (Labels{"0", "0.2e-5", "0.4e-5", "0.6e-5", "0.8e-5", "1.0e-5"}));
  EXPECT_EQ(labels(linear_ticks(0, 9500, 4)), (Labels{"0", "2000", "4000", "6000", "8000"}));
  EXPECT_EQ(labels(linear_ticks(12000, 12500, 5)), (Labels{"12.0k", "12.1k", "12.2k", "12.3k", "12.4k", "12.5k"}));
  EXPECT_EQ(labels(linear_ticks(-1, 1, 4)), (Labels{"-1.0", "-0.5", "0", "0.5", "1.0"}));
  EXPECT_EQ(labels(linear_ticks(3, 3, 4)).size(), 1u);
}

TEST(Ticks, OfStepsAreWhole) {
  EXPECT_EQ(labels(whole_ticks(1, 4, 9)), (Labels{"1", "2", "3", "4"}));
  EXPECT_EQ(labels(whole_ticks(1, 2, 4)), (Labels{"1", "2"}));
  EXPECT_EQ(labels(whole_ticks(7, 7, 4)), (Labels{"7"}));
  EXPECT_EQ(labels(whole_ticks(1, 400, 4)), (Labels{"100", "200", "300", "400"}));
  EXPECT_EQ(labels(whole_ticks(1, 100000, 4)), (Labels{"20k", "40k", "60k", "80k", "100k"})) << "two are too few";
  EXPECT_EQ(labels(whole_ticks(1, 30000, 3)), (Labels{"10k", "20k", "30k"}));
}

TEST(Ticks, OfLogarithmsBytesAndTimeHaveTheirUnits) {
  EXPECT_EQ(labels(logarithmic_ticks(0.15, 12)), (Labels{"0.2", "0.5", "1", "2", "5", "10"}));
  EXPECT_EQ(labels(logarithmic_ticks(0.01, 1000)), (Labels{"0.01", "0.1", "1", "10", "100", "1000"}));
  EXPECT_EQ(labels(byte_ticks(3.1 * (1 << 30), 3)), (Labels{"0 GiB", "1 GiB", "2 GiB", "3 GiB"}));
  EXPECT_EQ(labels(logarithmic_ticks(2.5, 3.5)), (Labels{"2.6", "2.8", "3.0", "3.2", "3.4"}))
      << "too narrow for powers";
  EXPECT_EQ(labels(logarithmic_ticks(0.9, 7.5)), (Labels{"1", "1.5", "2", "3", "4", "5", "7"}));
  EXPECT_EQ(labels(clock_ticks(90, 4)), (Labels{"0s", "50s"}));
  EXPECT_EQ(labels(clock_ticks(600, 5)), (Labels{"0s", "2m00s", "4m00s", "6m00s", "8m00s", "10m00s"}));
  EXPECT_EQ(labels(clock_ticks(9000, 3)), (Labels{"0s", "1h00m", "2h00m"}));
  EXPECT_EQ(labels(time_ticks(0.25, 5)), (Labels{"0 ms", "50 ms", "100 ms", "150 ms", "200 ms", "250 ms"}));
}

TEST(Scale, MapsEndsToEnds) {
  const Scale linear{.low = 1, .high = 3, .from = 100, .to = 0};
  EXPECT_EQ(linear(1), 100);
  EXPECT_EQ(linear(3), 0);
  EXPECT_EQ(linear(2), 50);
  const Scale logarithmic{.low = 0.1, .high = 10, .from = 0, .to = 100, .logarithmic = true};
  EXPECT_NEAR(logarithmic(1), 50, 1e-9);
  EXPECT_EQ((Scale{.low = 2, .high = 2, .from = 5, .to = 9})(2), 5);
}

TEST(Curves, ThinnedOutKeepTheirEndsAndEveryExtreme) {
  std::vector<Point> points;
  for (int i = 0; i < 100'003; ++i) points.push_back({static_cast<double>(i), std::sin(i * 0.01)});
  points[54'321].y = 7;
  points[98'765].y = -9;
  const std::vector<Point> kept = thin_out(points, 1000);
  EXPECT_LE(kept.size(), 1000u);
  EXPECT_GE(kept.size(), 900u);
  EXPECT_EQ(kept.front().x, 0);
  EXPECT_EQ(kept.back().x, 100'002);
  double low = 0, high = 0;
  for (size_t i = 0; i < kept.size(); ++i) {
    low = std::min(low, kept[i].y);
    high = std::max(high, kept[i].y);
    if (i > 0) {
      EXPECT_GT(kept[i].x, kept[i - 1].x);
    }
  }
  EXPECT_EQ(high, 7);
  EXPECT_EQ(low, -9);
  EXPECT_EQ(thin_out({points.begin(), points.begin() + 1000}, 1000).size(), 1000u);
}

TEST(Curves, SmoothedDoNotLag) {
  std::vector<Point> line, step;
  for (int i = 0; i < 200; ++i) {
    line.push_back({static_cast<double>(i), 5.0 - 0.02 * i});
    step.push_back({static_cast<double>(i), i < 100 ? 3.0 : 1.0});
  }
  const std::vector<Point> straight = smoothed(line, 15);
  for (size_t i = 0; i < line.size(); ++i) EXPECT_NEAR(straight[i].y, line[i].y, 1e-9) << "up to both ends";
  const std::vector<Point> fall = smoothed(step, 15);
  for (size_t i = 0; i < 100; ++i)  // smoothing does not shift the middle of the fall
    EXPECT_NEAR(fall[99 - i].y - 2, 2 - fall[100 + i].y, 1e-9);
  EXPECT_GT(fall[95].y, fall[99].y);
  EXPECT_NEAR(fall[60].y, 3, 1e-9);
}

TEST(Curves, SmoothedLoseTheirNoise) {
  std::vector<Point> points;
  for (int i = 0; i < 400; ++i) points.push_back({static_cast<double>(i), 2 + (i % 2 ? 0.5 : -0.5)});
  const std::vector<Point> smooth = smoothed(points, 16);
  for (size_t i = 20; i < 380; ++i) EXPECT_NEAR(smooth[i].y, 2, 0.01);
  EXPECT_EQ(smoothed({}, 4).size(), 0u);
  EXPECT_EQ(smoothed({{3, 7}}, 4).at(0).y, 7);
}

TEST(Curves, LongOnesAreSmoothedInFewPointsFromAllTheirNeighbours) {
  std::vector<Point> points;
  for (int i = 0; i < 100'000; ++i) points.push_back({static_cast<double>(i), 5 - 1e-5 * i + (i % 2 ? 0.5 : -0.5)});
  const std::vector<Point> smooth = smoothed(points, 4000);
  ASSERT_EQ(smooth.size(), kMostSmoothed);
  EXPECT_EQ(smooth.front().x, 0);
  EXPECT_EQ(smooth.back().x, 99'999);
  for (const Point& at : smooth) EXPECT_NEAR(at.y, 5 - 1e-5 * at.x, 0.01);
}

TEST(Curves, MeansOfNeighboursAreFewAndTakeEveryPoint) {
  std::vector<Point> points;
  for (int i = 0; i < 1001; ++i) points.push_back({static_cast<double>(i), i % 2 ? 3.0 : 1.0});
  const std::vector<Point> means = neighbour_means(points, 100);
  EXPECT_EQ(means.size(), 91u);
  EXPECT_EQ(means[0].x, 5);
  EXPECT_NEAR(means[0].y, 21.0 / 11, 1e-12);
  EXPECT_EQ(means.back().x, 995);
  EXPECT_EQ(neighbour_means(points, 1001).size(), 1001u);
  EXPECT_TRUE(neighbour_means({}, 10).empty());
}

TEST(Curves, UsualValuesLeaveOutWhatStandsAloneFarFromAllOthers) {
  std::vector<Point> points;
  for (int i = 0; i < 1000; ++i) points.push_back({static_cast<double>(i), 2 + 10 * std::exp(-0.1 * i)});
  const ValueRange fall = usual_range(points, false);
  for (const Point& p : points) EXPECT_TRUE(fall.holds(p.y)) << "a first loss is high: " << p.x;
  for (const size_t at : {0, 1, 500, 501, 999}) points[at].y = 1e9;
  const ValueRange usual = usual_range(points, false);
  EXPECT_TRUE(usual.holds(12));
  EXPECT_LT(usual.high, 100);
  EXPECT_EQ(usual_points(points, false).size(), 995u);
  EXPECT_TRUE(usual_range(points, true).holds(5000)) << "a logarithmic axis has room for more";
  EXPECT_FALSE(usual_range(points, true).holds(1e9));
  for (size_t at = 600; at < 620; ++at) points[at].y = 1e9;
  EXPECT_TRUE(usual_range(points, false).holds(1e9)) << "where the run went to and stayed";
  EXPECT_TRUE(usual_range({{1, 2}, {2, 1e9}}, false).holds(1e9)) << "of two neither is the absurd one";
  EXPECT_FALSE(usual_range({{1, 2}, {2, 1e9}, {3, 2}}, false).holds(1e9));
  EXPECT_TRUE(usual_range({{1, 0}, {2, 0}, {3, 0}, {4, 0.1}}, false).holds(0.1)) << "zeros say nothing of a size";
}

TEST(Curves, AnAbsurdValueIsDrawnAtTheEdgeWithAMarkAndInWords) {
  Chart chart{.title = "Loss", .curves = {{.name = "training", .style = "raw"}}};
  for (int i = 1; i <= 40; ++i) chart.curves[0].points.push_back({static_cast<double>(i), 2 + 0.01 * (i % 5)});
  const std::string plain = svg_chart(chart);
  EXPECT_EQ(plain.find("beyond"), std::string::npos);
  chart.curves[0].points[19].y = 1e9;
  const std::string one = svg_chart(chart);
  const auto axis = [](const std::string& svg) { return svg.substr(svg.find("data-y"), 60); };
  EXPECT_EQ(axis(one), axis(plain));
  EXPECT_NE(one.find("One value is beyond the axis and drawn at its edge; step 20: 1e+09</p>"), std::string::npos)
      << one;
  EXPECT_NE(one.find("<title>step 20: 1e+09</title>"), std::string::npos);
  EXPECT_EQ(one.find("-10000"), std::string::npos) << "nothing is drawn far outside";
  chart.curves[0].points[29].y = -5e8;
  const std::string two = svg_chart(chart);
  EXPECT_EQ(axis(two), axis(plain));
  EXPECT_NE(two.find("2 values are beyond the axis and drawn at its edge; the farthest: step 20: 1e+09</p>"),
            std::string::npos)
      << two;
}

// A gradient norm: the axis becomes logarithmic for a range that it can show, but not for one absurd value.
TEST(Curves, AnAbsurdValueMakesNoAxisLogarithmic) {
  Chart chart{.title = "Norm", .logarithmic = true, .curves = {{.name = "norm", .style = "raw"}}};
  for (int i = 1; i <= 40; ++i) chart.curves[0].points.push_back({static_cast<double>(i), 1 + 0.01 * (i % 5)});
  chart.curves[0].points[19].y = 1e9;
  EXPECT_NE(svg_chart(chart).find("data-log=\"0\""), std::string::npos);
  chart.curves[0].points[19].y = 100;
  EXPECT_NE(svg_chart(chart).find("data-log=\"1\""), std::string::npos);
  EXPECT_EQ(svg_chart(chart).find("beyond"), std::string::npos);
  chart.curves[0].points[19].y = 20;
  EXPECT_NE(svg_chart(chart).find("data-log=\"0\""), std::string::npos);
  EXPECT_EQ(svg_chart(chart).find("beyond"), std::string::npos) << "what a logarithmic axis has room for";
}

// The page's script only looks values up; it contains no numbers.
TEST(Curves, CarryTheStepsAndValuesThatThePointerShows) {
  Chart chart{.title = "Loss", .across = Across::time, .curves = {{.name = "a<b", .style = "smooth"}}};
  chart.curves[0].points = {{1, 3.25}, {2, 3}, {10, 2.125}};
  chart.curves[0].across = [](double step) { return 60 * step; };
  const std::string svg = svg_chart(chart);
  for (const char* part : {"data-name=\"a&lt;b\"", "data-steps=\"1 2 10\"", "data-values=\"3.25 3 2.125\"",
                           "data-at=\"1m00s 2m00s 10m00s\"", "points=\"100,", " 1000,", ">time in steps<"})
    EXPECT_NE(svg.find(part), std::string::npos) << part << svg;
}

TEST(Curves, OfTheLossAreLogarithmicWhenAskedWhateverTheirSpread) {
  Chart chart{.title = "Loss", .always_logarithmic = true, .curves = {{.name = "training", .style = "raw"}}};
  for (int i = 1; i <= 40; ++i) chart.curves[0].points.push_back({static_cast<double>(i), 2 + 0.01 * i});
  EXPECT_NE(svg_chart(chart).find("data-log=\"1\""), std::string::npos);
  chart.curves[0].points[5].y = 0;
  EXPECT_NE(svg_chart(chart).find("data-log=\"0\""), std::string::npos) << "zero has no logarithm";
}

TEST(Lanes, ShowTheFloorOfTheStepAndOfEachLane) {
  LaneTracks tracks{.step = 3, .floor_s = 0.5, .machine = "a<b", .lanes = {{.name = "compute", .floor_s = 0.25}}};
  tracks.lanes[0].spans = {{"block forward", 1, 0, 0.75}, {"block backward", 1, 0.75, 1}};
  const std::string svg = svg_lanes(tracks);
  for (const char* part : {"100% busy", "floor 500 ms on a&lt;b", "work on a&lt;b: 250 ms", "width=\"75%\""})
    EXPECT_NE(svg.find(part), std::string::npos) << part << svg;
}

TEST(Lanes, ManyShortActionsBecomeFewBoxes) {
  LaneTracks tracks{.step = 3, .lanes = {{.name = "compute"}}};
  for (int i = 0; i < 50'000; ++i)
    tracks.lanes[0].spans.push_back({i % 2 ? "block forward" : "embed forward", 1, i * 1e-3, i * 1e-3 + 9e-4});
  const std::string svg = svg_lanes(tracks);
  EXPECT_LT(svg.size(), 300'000u);
  EXPECT_NE(svg.find("x forward"), std::string::npos);
  EXPECT_EQ(svg_lanes({.step = 1, .lanes = {{.name = "compute"}}}), "");
}

TEST(Lanes, NamesWhichExpertsOfALayerAnActionIsOf) {
  const nlohmann::json trace = nlohmann::json::parse(R"({"traceEvents": [
    {"ph": "M", "tid": 3, "args": {"name": "update"}},
    {"ph": "X", "name": "update 3, experts 1 to 8", "tid": 3, "ts": 0, "dur": 1000,
     "args": {"step": 3, "layer": 3, "experts": "experts 1 to 8", "micro_batch": -1}},
    {"ph": "X", "name": "update 4", "tid": 3, "ts": 2000, "dur": 1000,
     "args": {"step": 3, "layer": 4, "micro_batch": -1}}]})");
  const std::string svg = svg_lanes(read_lanes(trace, "lanes.json"));
  EXPECT_NE(svg.find("<title>update of experts 1 to 8 of layer 3: 1 ms"), std::string::npos) << svg;
  EXPECT_NE(svg.find("<title>update of layer 4: 1 ms"), std::string::npos) << svg;
  EXPECT_EQ(svg.find("box other"), std::string::npos) << "an update is one, whatever it is of";
}

TEST(Numbers, AreShort) {
  EXPECT_EQ(short_number(7.6156e9), "7.62B");
  EXPECT_EQ(short_number(999.7), "1k");
  EXPECT_EQ(short_number(12345), "12.3k");
  EXPECT_EQ(short_number(3), "3");
  EXPECT_EQ(pixels(-0.001), "0");
  EXPECT_EQ(pixels(12.30), "12.3");
}

}  // namespace megatrain
