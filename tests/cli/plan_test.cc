// `megatrain plan`, `hash` and `demo` as scripts see them.
#include <set>
#include <algorithm>
#include <cmath>
#include <map>

#include "megatrain/advice/what_fits.h"
#include "megatrain/io/json_file.h"
#include "tests/support/command.h"

namespace megatrain::cli {

namespace {

json plan_of(const Words& words) {
  Words all = {"plan", "--json"};
  all.insert(all.end(), words.begin(), words.end());
  return json::parse(succeed(all).out);
}

// What the reference promises for a plan that fits.
void expect_contract_plan(const json& plan, int64_t blocks) {
  EXPECT_EQ(plan.at("fits"), true);
  ASSERT_EQ(plan.at("placement").size(), static_cast<size_t>(blocks + 2));
  for (const json& layer : plan.at("placement")) {
    const json& verdict = plan.at("verdict");
    EXPECT_EQ(verdict.at("fits"), true);
    EXPECT_EQ(verdict.at("tokens_per_s"), plan.at("tokens_per_s"));
    for (const char* tier : {"hbm", "host", "disk"}) EXPECT_EQ(verdict.at(tier), plan.at("peaks").at(tier)) << tier;
    EXPECT_TRUE(verdict.contains("seconds") && verdict.contains("cost"));
    for (const char* key : {"layer", "kind", "weights", "state", "boundary"}) EXPECT_TRUE(layer.contains(key)) << key;
  }
  EXPECT_GT(plan.at("parameters"), 0);
  EXPECT_EQ(plan.at("active_parameters"), plan.at("parameters")) << "it is dense";
  EXPECT_TRUE(plan.at("slots").is_number_integer());
  EXPECT_TRUE(plan.at("sweeps").is_array());
  EXPECT_EQ(plan.at("recompute").size(), static_cast<size_t>(blocks));
  for (const char* tier : {"hbm", "host", "disk"}) EXPECT_TRUE(plan.at("peaks").at(tier).is_number_integer()) << tier;
  EXPECT_GT(plan.at("step_s"), 0);
  for (const auto& [lane, seconds] : plan.at("lanes_s").items()) EXPECT_TRUE(seconds.is_number()) << lane;
  EXPECT_NEAR(plan.at("compute_s").at("attention").get<double>() + plan.at("compute_s").at("rest").get<double>(),
              plan.at("lanes_s").at("compute").get<double>(), 1e-9);
  EXPECT_GT(plan.at("compute_s").at("attention"), 0);
  EXPECT_EQ(plan.at("longest_seq_len").get<int64_t>() % 1024, 0);
  EXPECT_TRUE(plan.at("lanes_s").contains(plan.at("bound_by").get<std::string>()));
  EXPECT_NEAR(plan.at("tokens_per_s").get<double>() * plan.at("step_s").get<double>(),
              std::round(plan.at("tokens_per_s").get<double>() * plan.at("step_s").get<double>()), 1e-3);
  EXPECT_TRUE(plan.contains("smallest_step"));
  for (const char* what : {"link", "weights", "gradients", "optimizer"})
    EXPECT_GE(plan.at("tokens_to_hide").at(what), 0) << what;
  EXPECT_GT(plan.at("checkpoint").at("bytes"), 0);
  EXPECT_GT(plan.at("checkpoint").at("seconds"), 0);
  EXPECT_TRUE(plan.at("machine").at("name").is_string());
  EXPECT_TRUE(plan.at("machine").at("measured").is_boolean());
  EXPECT_EQ(plan.at("suggestions"), json::array());
  EXPECT_TRUE(plan.at("changes").is_array());
  EXPECT_FALSE(plan.at("plan_hash").get<std::string>().empty());
}

}  // namespace

TEST(PlanVerb, PrintsEveryKeyOfTheContract) {
  const Place place("llama_linear", "steps: 1\n");
  expect_contract_plan(plan_of({place.config()}), 2);
  expect_contract_plan(plan_of({golden("llama_linear") + "/model", "--device=cpu", "--seq_len=64"}), 2);
  expect_contract_plan(
      plan_of({"qwen2.5-7b", "--device=cpu", "--layers=3", "--seq_len=8", "--memory.gpu=1TiB", "--memory.host=1TiB"}),
      3);
}

TEST(PlanVerb, SaysWhatSamplesTakeByName) {
  const Words words = {"qwen2.5-3b", "--machine=4090", "--micro_batch=1"};
  const json plain = plan_of(words);
  EXPECT_TRUE(plain.at("generation").is_null());
  EXPECT_FALSE(plain.at("memory").at("hbm").contains("generation"));
  Words sampling = words;
  sampling.insert(sampling.end(), {"--sample.every=10", "--sample.prompts=What is it?", "--sample.max_tokens=20000"});
  const json plan = plan_of(sampling);
  const int64_t aside = plan.at("generation").at("set_aside");
  EXPECT_EQ(plan.at("memory").at("hbm").value("generation", int64_t{0}), aside);
  EXPECT_LT(aside, plan.at("generation").at("bytes"));
  EXPECT_EQ(plan.at("memory").at("hbm").at("driver"), plain.at("memory").at("hbm").at("driver"));
  sampling.insert(sampling.begin(), {"plan", "--bytes"});
  EXPECT_NE(succeed(sampling).out.find("\nsamples: "), std::string::npos);
}

TEST(PlanVerb, SaysThatSequencesAreLongerThanTheModelWasMadeFor) {
  const Outcome within = succeed({"plan", golden("llama_linear") + "/model", "--device=cpu", "--seq_len=64"});
  EXPECT_EQ(within.err.find("max_position_embeddings"), std::string::npos) << within.err;
  const Outcome beyond = succeed({"plan", golden("llama_linear") + "/model", "--device=cpu", "--seq_len=4096"});
  EXPECT_NE(beyond.err.find("seq_len is 4096 and the model was made for "), std::string::npos) << beyond.err;
  // 128 positions, which its rope_scaling extends to 256
  for (const auto& [length, warned] : {std::pair("256", false), {"257", true}}) {
    const Outcome scaled =
        succeed({"plan", golden("qwen2_yarn") + "/model", "--device=cpu", std::string("--seq_len=") + length});
    EXPECT_EQ(scaled.err.find("max_position_embeddings") != std::string::npos, warned) << scaled.err;
  }
}

TEST(PlanVerb, SaysTheLongestContextAndWhatAttentionTakes) {
  const Words words = {"qwen2.5-7b",         "--machine=h200", "--ram=125GiB",
                       "--memory.gpu=24GiB", "--batch=1",      "--micro_batch=1"};
  const auto with_length = [&](const char* verb, int64_t seq_len) {
    Words all = {verb, "--seq_len=" + std::to_string(seq_len)};
    all.insert(all.end(), words.begin(), words.end());
    return all;
  };
  const int64_t longest = plan_of(words).at("longest_seq_len");
  const Outcome there = succeed(with_length("plan", longest));
  EXPECT_NE(there.out.find(fmt::format("longest context: {} tokens (--seq_len={} --micro_batch=1)", longest, longest)),
            std::string::npos)
      << there.out;
  EXPECT_NE(there.out.find(" (attention "), std::string::npos) << there.out;
  // beyond that, a shorter context is what helps
  expect_refusal(with_length("plan", longest + 1024), ExitCode::cannot_fit,
                 {"this run needs", fmt::format("longest context: {} tokens", longest)});
  Words beyond = with_length("plan", longest + 1024);
  beyond.emplace_back("--json");
  EXPECT_EQ(json::parse(megatrain(beyond).out).at("longest_seq_len"), longest);
}

TEST(PlanVerb, LeavesInFilesWhatHostMemoryDoesNotHoldAndCountsItApart) {
  const auto with = [&](const std::string& ram, const std::string& base) -> Words {
    return {"qwen2.5-32b", "--machine=4090", "--batch=8", "--adapter.rank=16", "--ram=" + ram, "--memory.base=" + base};
  };
  const json plan = plan_of(with("16GiB", "auto"));
  int64_t in_files = 0;  // records
  for (const json& record : plan.at("placement")) in_files += record.at("weights") == "files";
  const int64_t left = plan.at("peaks").at("files");
  EXPECT_GT(left, 0);
  EXPECT_EQ(plan.at("memory").at("files").at("weights"), left);
  EXPECT_EQ(plan.at("peaks").at("disk"), 0);
  EXPECT_GT(plan.at("lanes_s").at("disk_read"), 0);
  EXPECT_GT(in_files, 0);
  EXPECT_EQ(plan_of(with("96GiB", "auto")).at("peaks").at("files"), 0);
  const json all = plan_of(with("16GiB", "files"));
  EXPECT_GT(all.at("peaks").at("files"), left);
  EXPECT_LT(all.at("peaks").at("host"), plan.at("peaks").at("host"));
  Words host = with("16GiB", "host");
  host.insert(host.begin(), "plan");
  expect_refusal(host, ExitCode::cannot_fit, {"host memory", "would fit, the best first", "--memory.base=auto"});
}

// Let N be the parameters, A the active ones per token, F the flop/s and B the link's bytes/s. Then 2 N bytes arrive
// while 2 A flops per token are computed. The exact update moves 26 bytes of host memory per parameter that the host
// updates: those that do not visit the device, which are spread evenly. Attention's own flops and the head are
// neglected.
TEST(PlanVerb, SaysTheTokensThatHideWhatAMixtureOfExpertsMovesAndWhatASmallStepCosts) {
  const Words words = {"gpt-oss-120b",     "--machine=h200", "--ram=1600GiB", "--memory.state=host",
                       "--micro_batch=16", "--seq_len=1024", "--batch=256"};
  const json plan = plan_of(words);
  const double all = plan.at("parameters"), active = plan.at("active_parameters");
  EXPECT_NEAR(active, 5.1e9, 0.05e9);
  // from the data sheet; 0.7 of the active parameters are experts, whose GEMMs run at 0.7 of the rate
  constexpr double kFlops = 640e12 / (0.7 / 0.7 + 0.3), kLink = 50e9, kDram = 130e9;
  const json& hide = plan.at("tokens_to_hide");
  double stay = 0;  // of the records, which are nearly equal
  for (const json& record : plan.at("placement")) stay += record.at("state") == "host";
  stay /= static_cast<double>(plan.at("placement").size());
  const double weights = all / active * kFlops / kLink, update = 26 * stay * all * kFlops / (2 * active * kDram);
  EXPECT_NEAR(hide.at("weights").get<double>() / weights, 1, 0.15);
  EXPECT_NEAR(hide.at("gradients").get<double>() / (weights / 3), 1, 0.15);
  EXPECT_NEAR(hide.at("optimizer").get<double>() / update, 1, 0.15);
  EXPECT_EQ(hide.at("link"), hide.at("weights"));
  std::map<int64_t, int64_t> records;  // per layer
  int64_t number = 0;
  for (const json& record : plan.at("placement")) {
    EXPECT_EQ(record.at("record"), number++);
    EXPECT_EQ(record.contains("experts"), records[record.at("layer")]++ > 0);
  }
  EXPECT_EQ(std::ssize(records), 38);  // embedding, 36 layers, head
  const json& small = plan.at("smallest_step");
  EXPECT_EQ(small.at("tokens"), 16 * 1024);
  EXPECT_NE(small.at("bound_by"), "compute");
  EXPECT_LT(small.at("step_s"), plan.at("step_s"));
  EXPECT_LT(small.at("tokens_per_s").get<double>(), plan.at("tokens_per_s").get<double>() / 4);
  Words as_text = {"plan", "--bytes"};
  as_text.insert(as_text.end(), words.begin(), words.end());
  const std::string text = succeed(as_text).out;
  for (const char* part : {"117B parameters (5.13B active)", "weights arrive within forward", "the smallest step"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_TRUE(plan_of({"qwen2.5-7b", "--machine=h200", "--seq_len=1024", "--batch=32"}).at("smallest_step").is_null())
      << "dense, and bound by compute";
}

TEST(PlanVerb, PeaksAreTheSumOfWhatIsListed) {
  const json plan = plan_of({golden("qwen2_tied") + "/model", "--device=cpu"});
  for (const char* tier : {"hbm", "host"}) {
    int64_t sum = 0;
    for (const auto& [tag, bytes] : plan.at("memory").at(tier).items()) sum += bytes.get<int64_t>();
    EXPECT_EQ(plan.at("peaks").at(tier), sum);
  }
}

TEST(PlanVerb, PlansForAMachineThatIsNotThereAndSaysThatItIsFromDataSheets) {
  const json plan = plan_of({"qwen2.5-3b", "--machine=4090", "--batch=16", "--price=0.5"});
  expect_contract_plan(plan, 36);
  EXPECT_EQ(plan.at("machine"), json({{"name", "4090"}, {"measured", false}}));
  EXPECT_NEAR(plan.at("cost_per_billion_tokens").get<double>(),
              0.5 / 3600 * 1e9 / plan.at("tokens_per_s").get<double>(), 1e-6);
  EXPECT_LE(plan.at("peaks").at("hbm"), int64_t{23} << 30);
  const std::string text =
      succeed({"plan", "qwen2.5-3b", "--machine=4090", "--batch=16", "--price=0.5", "--bytes"}).out;
  for (const char* part : {"4090 (from data sheets)", "tokens/s", "a checkpoint", "a billion tokens cost"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_EQ(text.find("of 0 more"), std::string::npos) << text;
}

TEST(PlanVerb, WhatDoesNotFitEndsWithCode4AndTheNearestChanges) {
  const Words words = {"plan", "qwen2.5-7b", "--machine=4090", "--ram=80GiB", "--batch=32", "--micro_batch=8"};
  Words with_json = words;
  with_json.push_back("--json");
  const Outcome outcome = megatrain(with_json);
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  const json plan = json::parse(outcome.out);
  EXPECT_EQ(plan.at("fits"), false);
  EXPECT_EQ(plan.at("machine").at("name"), "4090");
  ASSERT_FALSE(plan.at("suggestions").empty());
  EXPECT_LE(plan.at("suggestions").size(), 4u);
  EXPECT_EQ(plan.at("verdict").at("fits"), false);
  EXPECT_TRUE(plan.at("verdict").at("tokens_per_s").is_null());
  EXPECT_GT(plan.at("verdict").at("host"), int64_t{76} << 30);
  for (const json& suggestion : plan.at("suggestions")) {
    EXPECT_TRUE(suggestion.at("change").get<std::string>().starts_with("--")) << suggestion;
    EXPECT_TRUE(suggestion.at("note").is_string());
    EXPECT_GT(suggestion.at("tokens_per_s"), 0);
  }
  expect_refusal(words, ExitCode::cannot_fit,
                 {"does not fit on 4090 (from data sheets)", "host memory", "would fit, the best first",
                  "--state.moments=bf16", "--adapter.rank=16", "--memory.nvme=", "--freeze='model.embed_tokens.*,"});
}

TEST(PlanVerb, RefusesAMachineItDoesNotKnowSizesOfNothingAndProfilesThatLie) {
  expect_refusal({"plan", "qwen2.5-7b", "--machine=4099"}, ExitCode::bad_config, {"'4099'", "4090", "gh200"});
  expect_refusal({"plan", "qwen2.5-7b", "--machine=4090", "--ram=0"}, ExitCode::bad_config, {"--ram", "64GiB"});
  expect_refusal({"plan", "qwen2.5-7b", "--machine=4090", "--ram=64"}, ExitCode::bad_config, {"did you mean 64GiB?"});
  expect_refusal({"plan", "qwen2.5-7b", "--machine=4090", "--price=-1"}, ExitCode::bad_config, {"--price"});
  expect_refusal({"plan", "qwen2.5-7b", "--machine=4090", "--device=cpu"}, ExitCode::bad_config, {"--machine", "cpu"});
  expect_refusal({"plan", "--what-fits", "--machine=4090", "--layers=3"}, ExitCode::bad_config, {"--layers"});
  for (const char* tried : {"--state.moments=int8", "--freeze=lm_head.*", "--micro_batch=2", "--adapter.rank=8"})
    expect_refusal({"plan", "--what-fits", "--machine=4090", tried}, ExitCode::bad_config, {"--what-fits tries"});
  expect_refusal({"plan", "qwen2.5-0.5b", "--random", "-1"}, ExitCode::bad_config, {"--random is -1"});
  expect_refusal({"doctor", "--checks", "--out=p.json"}, ExitCode::bad_config, {"--checks", "--out"});
  const Place place;
  for (const char* const text : {R"({"profile": {"name": "box"}})", "a note", ""}) {
    write_bytes(place / "box.json", text);
    expect_refusal({"plan", "qwen2.5-7b", "--machine=" + (place / "box.json")}, ExitCode::bad_config,
                   {place / "box.json", "megatrain doctor"});
  }
}

TEST(PlanVerb, ADiskThatIsGivenHoldsWhatMemoryDoesNot) {
  const json plan = plan_of({"qwen2.5-7b", "--machine=4090", "--ram=80GiB", "--disk=500GB", "--batch=8"});
  EXPECT_EQ(plan.at("fits"), true);
  EXPECT_GT(plan.at("peaks").at("disk"), 0);
  EXPECT_EQ(plan_of({"qwen2.5-7b", "--machine=4090", "--ram=200GiB", "--batch=8"}).at("peaks").at("disk"), 0);
}

TEST(PlanVerb, RefusesBudgetsAboveWhatTheMachineHas) {
  const auto refused = [](const Words& more, std::initializer_list<std::string> parts) {
    Words words = {"plan", "qwen2.5-3b", "--machine=4090", "--batch=4"};
    words.insert(words.end(), more.begin(), more.end());
    expect_refusal(words, ExitCode::cannot_fit, parts);
    words.emplace_back("--json");
    const Outcome outcome = megatrain(words);
    EXPECT_EQ(outcome.code, 4);
    EXPECT_EQ(json::parse(outcome.out).at("fits"), false);
  };
  refused({"--memory.gpu=80GiB"},
          {"memory.gpu is 80.0 GiB", "23.0 GiB of GPU memory", "would fit", "--memory.gpu=auto"});
  refused({"--memory.host=65GiB"}, {"memory.host is 65.0 GiB", "64.0 GiB of host memory", "--ram"});
  refused({"--memory.host=65GiB", "--ram=48GiB"}, {"memory.host is 65.0 GiB", "48.0 GiB of host memory"});
  refused({"--memory.nvme_path=/nowhere", "--memory.nvme=2TiB"}, {"memory.nvme is 2.00 TiB", "931 GiB of disk"});
  refused({"--memory.nvme_path=/nowhere", "--memory.nvme=2TiB", "--disk=1TiB"}, {"1.00 TiB of disk", "--disk"});
  succeed({"plan", "qwen2.5-3b", "--machine=4090", "--ram=80GiB", "--memory.host=65GiB", "--memory.gpu=23GiB"});
  expect_refusal({"plan", "--what-fits", "--machine=4090", "--memory.gpu=80GiB"}, ExitCode::cannot_fit, {"memory.gpu"});
  expect_refusal({"plan", golden("llama_linear") + "/model", "--ram=8GiB", "--memory.host=9GiB"}, ExitCode::cannot_fit,
                 {"memory.host is 9.00 GiB", "8.00 GiB"});
}

TEST(PlanVerb, ABudgetOfTheDiskIsWithinWhatTheDiskOptionSays) {
  const Words words = {"qwen2.5-7b", "--machine=4090", "--ram=80GiB", "--batch=8", "--disk=500GB"};
  const auto disk_with = [&](const Words& more) {
    Words all = words;
    all.insert(all.end(), more.begin(), more.end());
    return plan_of(all).at("peaks").at("disk").get<int64_t>();
  };
  const int64_t needed = disk_with({});
  EXPECT_EQ(disk_with({"--memory.nvme_path=/nowhere"}), needed);
  EXPECT_EQ(disk_with({"--memory.nvme_path=/nowhere", "--memory.nvme=100GB"}), needed);
  Words little = {"plan", "--memory.nvme_path=/nowhere", "--memory.nvme=10GB"};
  little.insert(little.end(), words.begin(), words.end());
  expect_refusal(little, ExitCode::cannot_fit, {"on disk", "raise memory.nvme from 9.31 GiB", "--memory.nvme="});
  Words none = {"plan", "--memory.nvme=0"};
  none.insert(none.end(), words.begin(), words.end());
  expect_refusal(none, ExitCode::cannot_fit, {"host memory"});
}

TEST(PlanVerb, LooksAtTheDirectoryOfStateOnThisMachineAlone) {
  const Place place;
  const std::string model = golden("llama_linear") + "/model", missing = "--memory.nvme_path=" + (place / "nothing");
  expect_refusal({"plan", model, missing}, ExitCode::bad_config, {"memory.nvme_path", "nothing", "not a directory"});
  expect_refusal({"plan", model, missing, "--disk=1TB"}, ExitCode::bad_config, {"memory.nvme_path", "nothing"});
  expect_refusal({"plan", model, "--memory.nvme_path=" + place.path(), "--memory.nvme=900TiB"}, ExitCode::cannot_fit,
                 {"memory.nvme is 900 TiB", "of disk"});
  succeed({"plan", model, "--memory.nvme_path=" + place.path()});
  succeed({"plan", model, missing, "--machine=4090"});
}

TEST(PlanVerb, SaysWhyALongSequenceDoesNotFitAndLowersNoMicroBatchOfOne) {
  const Words gpt = {"plan",           "gpt-oss-20b",     "--machine",        "4090", "--ram", "1TiB",
                     "--seq_len=8192", "--micro_batch=1", "--memory.gpu=6GiB"};
  const Outcome one = megatrain(gpt);
  EXPECT_EQ(one.code, static_cast<int>(ExitCode::cannot_fit));
  EXPECT_NE(one.err.find("or lower seq_len (now 8192; a micro-batch is one sequence)"), std::string::npos) << one.err;
  EXPECT_EQ(one.err.find("lower micro_batch"), std::string::npos) << one.err;
  EXPECT_EQ(one.err.find("tiles"), std::string::npos) << one.err;
  Words several = gpt;
  several.insert(several.end(), {"--batch=8", "--micro_batch=8"});
  EXPECT_NE(megatrain(several).err.find("or lower micro_batch (now 65536 tokens a micro-batch), seq_len"),
            std::string::npos);
}

TEST(PlanVerb, CountsInTheSingular) {
  const std::string text =
      succeed({"plan", "qwen2.5-0.5b", "--machine", "4090", "--layers=1", "--batch=1", "--bytes"}).out;
  EXPECT_NE(text.find("in 1 block; 1024 tokens a step in 1 micro-batch of 1024\n"), std::string::npos) << text;
}

TEST(PlanVerb, OpensWithItsVerdictAndFitsOnOneScreen) {
  const Place place("llama_linear", "steps: 1000\n");
  for (const Words& words : {Words{"plan", place.config(), "--price=2"}, Words{"plan", "qwen2.5-7b", "--machine=h200"},
                             Words{"plan", "qwen2.5-3b", "--machine=4090", "--batch=8", "--price=0.5"}}) {
    const std::string text = succeed(words).out;
    EXPECT_TRUE(text.starts_with("fits: " + words[1] + " on ")) << text;
    EXPECT_NE(text.find("\ntakes "), std::string::npos) << text;
    EXPECT_NE(text.find("\nbound by "), std::string::npos) << text;
    EXPECT_NE(text.find("\nlongest context: "), std::string::npos) << text;
    EXPECT_LE(std::ranges::count(text, '\n'), 20) << text;
    EXPECT_EQ(text.find("device memory:"), std::string::npos) << text;
  }
  const std::string text = succeed({"plan", place.config(), "--price=2"}).out;
  EXPECT_NE(text.find("1000 steps take "), std::string::npos) << text;
  EXPECT_NE(text.find(" at 2 an hour"), std::string::npos) << text;
  EXPECT_NE(succeed({"plan", place.config(), "--bytes"}).out.find("device memory:"), std::string::npos);
}

TEST(PlanVerb, SaysTheTimeAndTheCostOfARunWhoseLengthIsKnown) {
  const Place place("llama_linear", "steps: 1000\n");
  const json plan = plan_of({place.config(), "--price=2"});
  const double seconds = 1000 * plan.at("step_s").get<double>();
  EXPECT_NEAR(plan.at("verdict").at("seconds").get<double>() / seconds, 1, 1e-9);
  EXPECT_NEAR(plan.at("verdict").at("cost").get<double>() / (seconds / 1800), 1, 1e-9);
  const json open = plan_of({golden("llama_linear") + "/model", "--price=2"});
  EXPECT_TRUE(open.at("verdict").at("seconds").is_null());
  EXPECT_TRUE(open.at("verdict").at("cost").is_null());
  EXPECT_TRUE(plan_of({place.config()}).at("verdict").at("cost").is_null());
}

TEST(PlanVerb, PlansARealisticStepOfAModelAloneAndTheUsersOwnOtherwise) {
  const json plan = plan_of({"qwen2.5-3b", "--machine=4090"});
  EXPECT_GE(plan.at("step").at("batch"), 16);
  EXPECT_EQ(plan.at("step").at("seq_len"), 1024);
  EXPECT_GT(plan.at("step").at("micro_batch"), 1);
  EXPECT_EQ(plan_of({"qwen2.5-3b", "--machine=4090", "--batch=3"}).at("step").at("batch"), 3);
  const Place place("llama_linear", "steps: 1\n");
  EXPECT_EQ(plan_of({place.config()}).at("step").at("batch"), 6);  // that of its file
}

TEST(PlanVerb, TakesNamesOfTheHubAndAsksWhichOfSeveralIsMeant) {
  const json plan = plan_of({"Qwen/Qwen2.5-0.5B-Instruct", "--machine=RTX4090", "--batch=8"});
  EXPECT_EQ(plan.at("machine").at("name"), "4090");
  EXPECT_EQ(plan.at("parameters"), plan_of({"qwen2.5-0.5b", "--machine=4090", "--batch=8"}).at("parameters"));
  expect_refusal({"plan", "7b"}, ExitCode::bad_config, {"'7b' may be", "qwen2.5-7b", "mistral-7b"});
  expect_refusal({"plan", "qwen2.5-7bb"}, ExitCode::bad_config, {"did you mean 'qwen2.5-7b'?"});
}

TEST(PlanVerb, SaysWhichModelsFitAMachine) {
  const json rows =
      json::parse(succeed({"plan", "--what-fits", "qwen2.5-0.5b", "Qwen/Qwen2.5-7B", "nemotron-nano-9b-v2",
                           "qwen3-30b-a3b", "--machine", "4090", "--ram", "64GiB", "--json"})
                      .out);
  ASSERT_TRUE(rows.is_array());
  EXPECT_EQ(rows.size(), 4 * fit_modes().size());
  expect_refusal({"plan", "--what-fits", "qwen2.5-7bb"}, ExitCode::bad_config, {"qwen2.5-7bb", "'qwen2.5-7b'"});
  bool some = false, none = false;
  std::set<int64_t> longest;
  for (const json& row : rows) {
    for (const char* key : {"model", "mode", "fits", "ram", "hbm", "disk", "tokens_per_s"})
      EXPECT_TRUE(row.contains(key)) << key;
    (row.at("fits").get<bool>() ? some : none) = true;
    const std::string moments = row.at("state").at("moments"), mode = row.at("mode");
    if (mode == "bf16" || mode == "fp32") {
      EXPECT_EQ(moments, mode);
    }
    if (mode == "longest context" && row.at("fits").get<bool>()) longest.insert(row.at("seq_len").get<int64_t>());
  }
  EXPECT_TRUE(std::any_of(longest.begin(), longest.end(), [](int64_t n) { return (n & (n - 1)) != 0; }));
  EXPECT_TRUE(some && none);
}

TEST(DoctorVerb, WhatWouldFailAfterTheMeasurementFailsBeforeIt) {
  const TemporaryDirectory directory;
  expect_refusal({"doctor", "--device=cpu", "--dir", directory / "absent"}, ExitCode::bad_config, {"--dir", "absent"});
  expect_refusal({"doctor", "--device=cpu", "--dir", directory.path(), "--out", directory / "absent/p.json"},
                 ExitCode::io, {"--out", "absent"});
}

TEST(DoctorVerb, ChecksAndAProfileThatPlansUse) {
  const Place place;
  const std::string file = place / "profile.json";
  const json result =
      json::parse(succeed({"doctor", "--device=cpu", "--dir=" + (place / ""), "--out=" + file, "--json"}).out);
  ASSERT_FALSE(result.at("checks").empty());
  for (const json& check : result.at("checks")) {
    for (const char* key : {"name", "ok", "found", "expected", "fix"}) EXPECT_TRUE(check.contains(key)) << key;
    EXPECT_EQ(check.at("ok").get<bool>(), check.at("fix").is_null());
  }
  const json& profile = result.at("profile");
  EXPECT_EQ(profile.at("measured"), true);
  for (const char* key : {"h2d_bytes_per_s", "d2h_bytes_per_s", "link_both_bytes_per_s", "dram_bytes_per_s",
                          "disk_read_bytes_per_s", "disk_write_bytes_per_s", "flops_per_s"})
    EXPECT_GT(profile.at(key), 0) << key;
  EXPECT_FALSE(profile.at("product_rates").empty());
  EXPECT_EQ(json::parse(read_bytes(file)), profile);
  const json plan = plan_of({golden("llama_linear") + "/model", "--machine=" + file});
  EXPECT_EQ(plan.at("machine"), json({{"name", profile.at("name")}, {"measured", true}}));
  json diskless = profile;
  diskless["disk_bytes"] = 0;
  write_bytes(file, diskless.dump());
  const Words words = {"plan", golden("llama_linear") + "/model", "--machine=" + file, "--memory.nvme_path=/nowhere"};
  expect_refusal(words, ExitCode::bad_config, {"memory.nvme_path", "--disk"});
}

TEST(PlanVerb, RefusesWhatIsNoTarget) {
  expect_refusal({"plan", "qwen9-900b"}, ExitCode::bad_config, {"qwen9-900b", "qwen2.5-7b"});
  const Place place;
  write_bytes(place / "list.json", "[1]");
  expect_refusal({"plan", place / "list.json", "--layers=2"}, ExitCode::bad_input, {place / "list.json"});
  expect_refusal({"plan", place.config(), "--random=many"}, ExitCode::bad_config, {"--random", "many"});
}

TEST(PlanVerb, ARandomPlanFitsTheBudgetsThatThePlannersDoes) {
  for (const char* seed : {"0", "5", "8"}) {
    const Outcome outcome =
        succeed({"plan", "qwen2.5-7b", "--memory.gpu=80GiB", "--memory.host=4TiB", "--random", seed, "--json"});
    EXPECT_TRUE(nlohmann::json::parse(outcome.out).at("fits").get<bool>());
  }
  expect_refusal({"plan", "qwen2.5-7b", "--memory.gpu=1GiB", "--random", "5"}, ExitCode::cannot_fit, {"random plans"});
}

TEST(PlanVerb, RandomPlansDifferAndTrainToOneState) {
  const Place place("llama_linear", "steps: 3\nmicro_batch: 1\n");
  succeed({"train", place.config()});
  const json expected = hash_of(place.run());
  std::set<std::string> hashes = {json::parse(succeed({"plan", place.config(), "--json"}).out).at("plan_hash")};
  for (int seed = 1; seed <= 6; ++seed) {
    const std::string file = place / fmt::format("plan-{}.json", seed), run = place / fmt::format("run-{}", seed);
    const Outcome outcome = succeed({"plan", place.config(), "--random", std::to_string(seed), "--json"});
    write_bytes(file, outcome.out);
    hashes.insert(json::parse(outcome.out).at("plan_hash"));
    succeed({"train", place.config(), "--plan=" + file, "--run_dir=" + run});
    EXPECT_EQ(hash_of(run), expected) << "seed " << seed;
    EXPECT_EQ(json::parse(read_bytes(run + "/plan.json")), json::parse(outcome.out).at("plan"));
  }
  EXPECT_EQ(hashes.size(), 7u);
}

TEST(PlanVerb, RandomPlansOfAMixtureCutItsExpertsInSeveralWaysAndTrainToOneStateAndNorm) {
  const Place place("qwen3_moe", "steps: 2\nmicro_batch: 1\n");
  const auto norms = [](const std::string& run) {
    std::vector<double> all;
    for (const json& line : metrics_of(run)) all.push_back(line.at("grad_norm"));
    return all;
  };
  succeed({"train", place.config()});
  const json expected = hash_of(place.run());
  std::set<int64_t> groups;
  for (int seed = 0; seed < 6; ++seed) {
    const std::string file = place / fmt::format("plan-{}.json", seed), run = place / fmt::format("run-{}", seed);
    write_bytes(file, succeed({"plan", place.config(), "--random", std::to_string(seed), "--json"}).out);
    groups.insert(json::parse(read_bytes(file)).at("plan").value("experts_per_record", int64_t{0}));
    succeed({"train", place.config(), "--plan=" + file, "--run_dir=" + run});
    EXPECT_EQ(hash_of(run), expected) << "seed " << seed;
    EXPECT_EQ(norms(run), norms(place.run())) << "seed " << seed;
  }
  EXPECT_GE(groups.size(), 3u);
}

TEST(HashVerb, OfARunItsLastStateAndItsCheckpointAgree) {
  const Place place("llama_packed", "steps: 4\ncheckpoint.every: 4\n");
  for (const char* precision : {"fp32", "bf16"}) {
    const std::string run = place / precision;
    succeed({"train", place.config(), "--dump.state=0,4", "--run_dir=" + run, std::string("--precision=") + precision});
    const json hash = hash_of(run);
    EXPECT_EQ(hash.at("step"), 4);
    EXPECT_EQ(hash, hash_of(run + "/state-4.safetensors"));
    EXPECT_EQ(hash, hash_of(run + "/checkpoints/step-00000004/state.safetensors"));
    EXPECT_EQ(hash.at("state").get<std::string>().size(), 32u);
    EXPECT_TRUE(hash.at("tensors").contains("model.norm.weight.exp_avg_sq"));
    EXPECT_NE(hash.at("state"), hash_of(run + "/state-0.safetensors").at("state"));
  }
}

TEST(HashVerb, OfAnExportIsOverStoredBytes) {
  const Place place("llama_linear", "steps: 0\n");
  succeed({"train", place.config()});
  const json exported = hash_of(place.run() + "/model"), source = hash_of(golden("llama_linear") + "/model");
  EXPECT_EQ(exported, source);
  EXPECT_TRUE(source.at("state").is_null());
  EXPECT_EQ(source.at("weights"), hash_of(place.run()).at("weights"));  // fp32: stored bytes are the logical ones
}

TEST(HashVerb, PrintsTheSameForAPersonAndRefusesNothing) {
  const Place place("llama_linear", "steps: 1\n");
  succeed({"train", place.config()});
  EXPECT_NE(succeed({"hash", place.run()}).out.find(hash_of(place.run()).at("state").get<std::string>()),
            std::string::npos);
  expect_refusal({"hash", place / "nothing"}, ExitCode::bad_input, {place / "nothing"});
  expect_refusal({"hash"}, ExitCode::bad_config, {"RUN, DIR or FILE"});
  expect_refusal({"hash", place.config()}, ExitCode::bad_input, {place.config()});
}

TEST(HelpVerb, IsOnStandardOutput) {
  for (const Words& words : std::vector<Words>{{"--help"},
                                               {"train", "--help"},
                                               {"plan", "-h"},
                                               {"hash", "--help"},
                                               {"demo", "--help"},
                                               {"bench", "--help"}}) {
    const Outcome outcome = succeed(words);
    EXPECT_NE(outcome.out.find("megatrain"), std::string::npos);
    EXPECT_EQ(outcome.err, "");
  }
  EXPECT_EQ(succeed({"help", "train"}).out, succeed({"train", "--help"}).out);
  EXPECT_EQ(succeed({"help", "--help"}).out, succeed({"--help"}).out);
  EXPECT_EQ(succeed({"help", "bench", "step"}).out, succeed({"bench", "step", "--help"}).out);
  expect_refusal({"help", "trian"}, ExitCode::bad_config, {"'trian'"});
  expect_refusal({"--help", "train"}, ExitCode::bad_config, {"no argument", "'train'"});
  expect_refusal({"--version", "all"}, ExitCode::bad_config, {"no argument", "'all'"});
}

TEST(PlanVerb, BlamesLayersAndNotTheModelForANumberThatNoModelHas) {
  for (const char* layers : {"0", "-3", "16385", "1000000"})
    expect_refusal({"plan", "qwen2.5-7b", "--layers", layers}, ExitCode::bad_config,
                   {std::string("--layers is ") + layers, "1 to 16384"});
}

TEST(PlanVerb, EveryOptionWithoutAValueIsNamed) {
  for (const std::string option : {"--random", "--layers", "--machine", "--ram", "--disk", "--price"}) {
    expect_refusal({"plan", "qwen2.5-7b", option}, ExitCode::bad_config, {option + " needs a value"});
    expect_refusal({"plan", "qwen2.5-7b", option, "--json"}, ExitCode::bad_config,
                   {option + " needs a value", "'--json' follows", option + "=VALUE"});
  }
  expect_refusal({"plan", "qwen2.5-7b", "--memory.host", "--json"}, ExitCode::bad_config,
                 {"--memory.host needs a value"});
}

TEST(PlanVerb, RefusesAPriceThatNoHourHas) {
  for (const char* price : {"1e308", "1e309", "1000001", "-1", "-1e-300", "nan", "inf", "-inf", "", "two"})
    expect_refusal({"plan", "qwen2.5-0.5b", "--machine=4090", std::string("--price=") + price}, ExitCode::bad_config,
                   {"--price is", "expected"});
}

TEST(DemoVerb, ReportsInJsonAndItsExportLoads) {
  const Place place("llama_linear", "steps: 0\n");
  const Outcome outcome =
      succeed({"demo", "--steps=3", "--seed=5", "--device=cpu", "--run_dir=" + (place / "demo"), "--json"});
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result.at("steps"), 3);
  EXPECT_EQ(result.at("seed"), 5);
  EXPECT_GT(result.at("test_questions"), 500);
  for (const char* key : {"accuracy_before", "accuracy_after"}) {
    EXPECT_GE(result.at(key), 0) << key;
    EXPECT_LT(result.at(key), 0.5) << key;  // three steps teach little
  }
  EXPECT_LT(result.at("loss_last"), result.at("loss_first"));
  EXPECT_NE(outcome.err.find("before training"), std::string::npos) << outcome.err;

  const std::string model = result.at("model");
  succeed({"train", place.config(), "--model.path=" + model});
  EXPECT_EQ(hash_of(place.run() + "/model"), hash_of(model));

  const Outcome again = succeed({"demo", "--steps=1", "--device=cpu", "--run_dir=" + (place / "demo")});
  EXPECT_NE(again.err.find("earlier run"), std::string::npos) << again.err;
  EXPECT_TRUE(fs::exists(place / "demo.1/model/config.json"));
}

TEST(DemoVerb, TeachesAnAdapterAndLeavesTheBaseAsItIs) {
  const TemporaryDirectory place;
  const Words words = {"demo", "--adapter", "--steps=4", "--device=cpu", "--run_dir=" + (place / "demo/"), "--json"};
  const json first = json::parse(succeed(words).out);
  const std::string base = first.at("model"), adapter = first.at("adapter");
  const json hash = hash_of(base);
  EXPECT_EQ(base, place / "demo/model");
  EXPECT_EQ(first.at("answers_as_before"), first.at("answers_without_adapter"));
  EXPECT_LT(first.at("loss_last"), first.at("loss_first"));
  EXPECT_EQ(read_json_file(adapter + "/adapter_config.json").at("base_model_name_or_path"), base);

  // the base of an earlier demo is used as it is
  const Outcome again = succeed(words);
  EXPECT_NE(again.err.find("earlier demo"), std::string::npos) << again.err;
  EXPECT_EQ(again.err.find("two-digit addition"), std::string::npos) << again.err;
  EXPECT_EQ(hash_of(base), hash);
  EXPECT_EQ(json::parse(again.out), first);
  EXPECT_TRUE(fs::exists(place / "demo-adapter.1/model/adapter_config.json"));
  succeed({"merge", base, adapter, "--out", place / "merged"});
  EXPECT_NE(hash_of(place / "merged"), hash);
}

}  // namespace megatrain::cli
