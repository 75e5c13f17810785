// `megatrain train` as scripts see it: which files it writes, with which dtypes, and what it prints where.
#include <map>
#include <set>

#include "tests/support/command.h"

namespace megatrain::cli {

namespace {

std::set<std::string> keys(const json& object) {
  std::set<std::string> names;
  for (const auto& [key, value] : object.items()) names.insert(key);
  return names;
}

// Every tensor in a directory's shards: dtype, shape and stored bytes.
std::map<std::string, std::tuple<std::string, std::string, std::string>> stored_tensors(const std::string& directory) {
  std::map<std::string, std::tuple<std::string, std::string, std::string>> tensors;
  for (const std::string& file : listing(directory)) {
    if (!file.ends_with(".safetensors")) continue;
    const RawSafetensors raw(directory + "/" + file);
    for (const auto& [name, entry] : raw.header.items()) {
      if (name != "__metadata__")
        tensors[name] = {entry.at("dtype").get<std::string>(), entry.at("shape").dump(), raw.bytes_of(name)};
    }
  }
  return tensors;
}

void expect_zero_steps_copy_every_tensor(const std::string& name, const std::string& type,
                                         const std::set<std::string>& unused, const std::string& precision) {
  const Place place(name, "steps: 0\n");
  const Outcome outcome = succeed({"train", place.config(), "--precision=" + precision});
  auto source = stored_tensors(golden(name) + "/model");
  for (const std::string& tensor : unused) {
    EXPECT_EQ(source.erase(tensor), 1u) << tensor;
    EXPECT_NE(outcome.err.find(tensor), std::string::npos) << "unused, but not listed: " << tensor;
  }
  EXPECT_FALSE(source.empty());
  EXPECT_EQ(std::get<0>(source.begin()->second), type);
  EXPECT_EQ(stored_tensors(place.run() + "/model"), source);
  EXPECT_EQ(json::parse(read_bytes(place.run() + "/model/config.json")),
            json::parse(read_bytes(golden(name) + "/model/config.json")));
}

}  // namespace

TEST(Train, ItsParametersAreCountedForPeopleOnceAndTheSameEverywhere) {
  const Place place("llama_linear", "steps: 1\n");  // 24520 parameters
  const std::string said = succeed({"train", place.config()}).err;
  EXPECT_NE(said.find("LlamaForCausalLM: 24.5K parameters, "), std::string::npos) << said;
  const std::string planned = succeed({"plan", place.config(), "--bytes"}).out;
  EXPECT_NE(planned.find("24.5K parameters in 2 blocks"), std::string::npos) << planned;
  const std::string frozen = succeed({"plan", place.config(), "--bytes", "--freeze=model.layers.*"}).out;
  EXPECT_NE(frozen.find("K of them are trained, the others frozen"), std::string::npos) << frozen;
  const std::string model = succeed({"inspect", golden("llama_linear") + "/model"}).out;
  EXPECT_NE(model.find("24520 (24.5K): "), std::string::npos) << model;
  const std::string run = succeed({"inspect", place.run()}).out;
  EXPECT_NE(run.find("LlamaForCausalLM, 24.5K parameters, from"), std::string::npos) << run;
  succeed({"report", place.run()});
  EXPECT_NE(read_bytes(place.run() + "/report.html").find("LlamaForCausalLM, 24.5K parameters"), std::string::npos);
}

TEST(Train, WritesOneMetricsLineAStepWithTheContractsKeys) {
  const Place place("llama_linear", "steps: 5\nmicro_batch: 3\n");
  succeed({"train", place.config()});
  const std::vector<json> lines = metrics_of(place.run());
  ASSERT_EQ(lines.size(), 5u);
  int64_t step = 0;
  for (const json& line : lines) {
    EXPECT_EQ(keys(line), (std::set<std::string>{"step", "steps", "epoch", "loss", "grad_norm", "clip_factor", "lr",
                                                 "tokens", "trained_tokens", "seconds", "paused_s", "tokens_per_s",
                                                 "bound_by", "stall", "lanes", "bytes", "hbm_peak", "host_peak"}));
    EXPECT_EQ(line.at("step"), ++step);
    for (const char* real : {"loss", "grad_norm", "clip_factor", "lr", "seconds", "tokens_per_s"})
      EXPECT_TRUE(line.at(real).is_number()) << real;
    for (const char* whole : {"tokens", "trained_tokens", "hbm_peak", "host_peak"}) {
      EXPECT_TRUE(line.at(whole).is_number_integer()) << whole;
      EXPECT_GT(line.at(whole), 0) << whole;
    }
    EXPECT_EQ(line.at("tokens"), 6 * 33);
    EXPECT_LT(line.at("trained_tokens"), line.at("tokens"));
    EXPECT_TRUE(line.at("lanes").contains(line.at("bound_by").get<std::string>()));
    for (const auto& [lane, seconds] : line.at("lanes").items()) {
      EXPECT_EQ(keys(seconds), (std::set<std::string>{"busy_s", "wait_s"})) << lane;
      for (const auto& [name, value] : seconds.items()) EXPECT_TRUE(value.is_number()) << name;
    }
    EXPECT_EQ(keys(line.at("bytes")), (std::set<std::string>{"h2d", "d2h", "disk_read", "disk_write"}));
    for (const auto& [name, value] : line.at("bytes").items()) EXPECT_TRUE(value.is_number_integer()) << name;
    EXPECT_GT(line.at("bytes").at("h2d"), 0);
  }
}

TEST(Train, MetricsCarrySeventeenSignificantDigits) {
  const Place place("llama_linear", "steps: 1\n");
  succeed({"train", place.config()});
  const std::string line = read_bytes(place.run() + "/metrics.jsonl");
  EXPECT_NE(line.find("\"lr\":0.0030000000000000001,"), std::string::npos) << line;
  EXPECT_NE(line.find("\"loss\":" + fmt::format("{:.17g}", json::parse(line).at("loss").get<double>())),
            std::string::npos)
      << line;
}

TEST(Train, PrintsOneJsonObjectOnStandardOutputAndLogsOnStandardError) {
  const Place place("llama_linear", "steps: 2\n");
  const Outcome outcome = succeed({"train", place.config(), "--json"});
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result.at("step"), 2);
  EXPECT_EQ(result.at("run_dir"), place.run());
  EXPECT_EQ(result.at("model"), place.run() + "/model");
  EXPECT_EQ(result.at("state"), hash_of(place.run()).at("state"));
  EXPECT_EQ(result.at("loss"), metrics_of(place.run()).back().at("loss"));
  for (const char* step : {"step 1/2", "step 2/2"}) EXPECT_NE(outcome.err.find(step), std::string::npos) << outcome.err;
}

TEST(Train, ResolvedConfigurationReproducesTheRun) {
  const Place place("qwen3_norm", "steps: 3\nmicro_batch: 2\n");
  succeed({"train", place.config(), "--optim.lr=1e-3", "--precision=bf16", "--optim.schedule=cosine"});
  const std::string again = place / "again";
  succeed({"train", place.run() + "/config.resolved.yaml", "--run_dir=" + again});
  EXPECT_EQ(hash_of(again), hash_of(place.run()));
  EXPECT_EQ(metrics_of(again).back().at("loss"), metrics_of(place.run()).back().at("loss"));
}

TEST(Train, DumpsGradientsAndStateOfTheStepsAskedFor) {
  const Place place("qwen2_tied", "steps: 3\n");
  succeed({"train", place.config(), "--dump.grads=1,3", "--dump.state", "0,2-3", "--precision=bf16"});
  std::set<std::string> dumps;
  for (const std::string& name : listing(place.run())) {
    if (name.ends_with(".safetensors")) dumps.insert(name);
  }
  EXPECT_EQ(dumps, (std::set<std::string>{"grads-1.safetensors", "grads-3.safetensors", "state-0.safetensors",
                                          "state-2.safetensors", "state-3.safetensors"}));

  std::set<std::string> gradients, states;
  for (const auto& [name, tensor] : stored_tensors(golden("qwen2_tied") + "/model")) {
    gradients.insert(name);
    for (const char* suffix : {"", ".exp_avg", ".exp_avg_sq"}) states.insert(name + suffix);
  }
  for (const auto& [file, names] : {std::pair{"grads-3", &gradients}, {"state-2", &states}}) {
    const RawSafetensors raw(place.run() + "/" + file + ".safetensors");
    std::set<std::string> found;
    for (const auto& [name, entry] : raw.header.items()) {
      if (name == "__metadata__") continue;
      found.insert(name);
      EXPECT_EQ(entry.at("dtype"), "F32") << name;
    }
    EXPECT_EQ(found, *names) << file;
  }
}

TEST(Train, ADumpWithoutClippingHoldsTheSameGradients) {
  const Place place("llama_bias", "steps: 1\n");
  succeed({"train", place.config(), "--dump.grads=1"});
  succeed({"train", place.config(), "--dump.grads=1", "--optim.clip=null", "--run_dir=" + (place / "free")});
  EXPECT_EQ(hash_of(place.run() + "/grads-1.safetensors").at("weights"),
            hash_of(place / "free/grads-1.safetensors").at("weights"));
}

TEST(Train, ZeroStepsCopyFloat32) { expect_zero_steps_copy_every_tensor("llama_linear", "F32", {}, "fp32"); }
TEST(Train, ZeroStepsCopyFloat32ThroughASplitMaster) {
  expect_zero_steps_copy_every_tensor("llama_linear", "F32", {}, "bf16");
}
TEST(Train, ZeroStepsCopyFloat16) { expect_zero_steps_copy_every_tensor("qwen3_norm", "F16", {}, "bf16"); }
TEST(Train, ZeroStepsCopyShardedBfloat16AndListWhatIsUnused) {
  expect_zero_steps_copy_every_tensor(
      "llama_packed", "BF16",
      {"model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.1.self_attn.rotary_emb.inv_freq"}, "bf16");
}

TEST(Train, ItsExportTrainsOn) {
  const Place place("llama_linear", "steps: 2\n");
  succeed({"train", place.config(), "--dump.state=2"});
  const std::string next = place / "next";
  succeed({"train", place.config(), "--model.path=" + place.run() + "/model", "--dump.state=0", "--run_dir=" + next});
  EXPECT_EQ(hash_of(place.run() + "/state-2.safetensors").at("weights"),
            hash_of(next + "/state-0.safetensors").at("weights"));
}

TEST(Train, RandomWeightsFollowTheSeed) {
  const Place place("llama_linear", "steps: 0\n");
  const auto weights = [&](const std::string& seed, const std::string& run) {
    succeed({"train", place.config(), "--model.path=null",
             "--model.config=" + golden("llama_linear") + "/model/config.json", "--seed=" + seed,
             "--run_dir=" + (place / run)});
    return hash_of(place / run + "/model").at("weights").get<std::string>();
  };
  const std::string first = weights("1", "a");
  EXPECT_EQ(weights("1", "b"), first);
  EXPECT_NE(weights("2", "c"), first);
}

TEST(Train, MicroBatchesSumToTheStep) {
  const Place place("llama_linear", "steps: 1\n");
  std::vector<json> lines;
  for (const char* micro : {"1", "3", "6"}) {
    succeed({"train", place.config(), "--micro_batch", micro, "--run_dir=" + (place / micro)});
    lines.push_back(metrics_of(place / micro).at(0));
  }
  for (const json& line : lines) {
    EXPECT_EQ(line.at("tokens"), lines[0].at("tokens"));
    EXPECT_EQ(line.at("trained_tokens"), lines[0].at("trained_tokens"));
    EXPECT_NEAR(line.at("loss").get<double>(), lines[0].at("loss").get<double>(), 1e-6);
    EXPECT_NEAR(line.at("grad_norm").get<double>(), lines[0].at("grad_norm").get<double>(), 1e-5);
    EXPECT_EQ(line.at("bytes").at("h2d"), lines[0].at("bytes").at("h2d"));
  }
}

TEST(Train, MovesAnEarlierRunAside) {
  const Place place("llama_linear", "steps: 1\n");
  succeed({"train", place.config()});
  const std::string first = read_bytes(place.run() + "/metrics.jsonl");
  for (const char* slash : {"", "/"}) {
    const Outcome outcome = succeed({"train", place.config(), "--run_dir=" + place.run() + slash, "--seed=3"});
    EXPECT_NE(outcome.err.find("earlier run"), std::string::npos) << outcome.err;
    EXPECT_EQ(metrics_of(place.run()).size(), 1u);
  }
  EXPECT_EQ(read_bytes(place / "run.1/metrics.jsonl"), first);
  EXPECT_EQ(listing(place.path()), (std::set<std::string>{"config.yaml", "run", "run.1", "run.2"}));
}

TEST(Train, AFolderThatIsNoRunIsRefusedAndItsModelStays) {
  const Place place("llama_linear", "steps: 1\n");
  fs::create_directories(place / "mine");
  fs::copy(golden("llama_linear") + "/model", place / "mine/model", fs::copy_options::recursive);
  const std::string weights = read_bytes(place / "mine/model/model.safetensors");
  ASSERT_FALSE(weights.empty());
  for (const Words& words : {Words{"train", place.config()}, Words{"demo", "--steps=1"}}) {
    Words given = words;
    given.push_back("--run_dir=" + (place / "mine"));
    expect_refusal(given, ExitCode::bad_config, {place / "mine", "model", "not a megatrain run", "--run_dir=DIR"});
  }
  EXPECT_EQ(read_bytes(place / "mine/model/model.safetensors"), weights);
  EXPECT_EQ(listing(place / "mine"), (std::set<std::string>{"model"}));
}

TEST(Train, AModelThatTheRunDidNotWriteIsKeptWhenARunGoesOn) {
  const Place place("llama_linear", "steps: 2\ncheckpoint.every: 1\n");
  succeed({"train", place.config()});
  const auto extend = [&](const char* steps) {
    return succeed({"train", place.config(), "--resume", "--steps", steps}).err;
  };
  EXPECT_EQ(extend("3").find("the former"), std::string::npos);  // its own is replaced
  EXPECT_FALSE(fs::exists(place.run() + "/model.previous"));
  fs::remove_all(place.run() + "/model");
  fs::copy(golden("llama_linear") + "/model", place.run() + "/model", fs::copy_options::recursive);
  const std::string weights = read_bytes(place.run() + "/model/model.safetensors");
  EXPECT_NE(extend("4").find("no record of these weights"), std::string::npos);
  EXPECT_EQ(read_bytes(place.run() + "/model.previous/model.safetensors"), weights);
  EXPECT_NE(read_bytes(place.run() + "/model/model.safetensors"), weights);
  EXPECT_FALSE(fs::exists(place.run() + "/hash.former.json"));
}

}  // namespace megatrain::cli
