// A model given by its name on the hub, in every verb that takes one.
#include <pwd.h>

#include "tests/support/command.h"
#include "tests/support/hub_folder.h"

namespace megatrain::cli {

namespace {

constexpr const char* kGolden = "llama_linear";

void fill(const HubFolder& hub) {
  for (const char* name : {"config.json", "model.safetensors"})
    hub.add(name, read_bytes(golden(kGolden) + "/model/" + name));
  hub.point_main_at("c0ffee");
}

}  // namespace

TEST(HubName, TrainsAsTheDirectoryDoesAndWritesDownWhichOneItWas) {
  const HubFolder hub;
  fill(hub);
  const Place place(kGolden, "steps: 2\n");
  succeed({"train", place.config(), "--run_dir=" + (place / "straight")});
  const Outcome outcome = succeed({"train", place.config(), "--model.path=Org/Name"});
  EXPECT_NE(outcome.err.find("model.path Org/Name is " + hub.snapshot()), std::string::npos) << outcome.err;
  EXPECT_EQ(hash_of(place.run()), hash_of(place / "straight"));
  EXPECT_NE(read_bytes(place.run() + "/config.resolved.yaml").find(hub.snapshot()), std::string::npos);
}

TEST(HubName, ServesPlanHashAndInspect) {
  const HubFolder hub;
  fill(hub);
  EXPECT_EQ(json::parse(succeed({"plan", "Org/Name", "--device=cpu", "--json"}).out).at("fits"), true);
  EXPECT_EQ(hash_of("Org/Name").at("weights"), hash_of(golden(kGolden) + "/model").at("weights"));
  EXPECT_EQ(json::parse(succeed({"inspect", "Org/Name", "--json"}).out).at("path"), hub.snapshot());
}

TEST(HubName, AbsentModelsEndWithTheDownloadCommand) {
  const HubFolder hub;
  const Place place(kGolden, "steps: 2\n");
  for (const Words& words : {Words{"train", place.config(), "--model.path=Org/Name"}, Words{"plan", "Org/Name"},
                             Words{"hash", "Org/Name"}, Words{"inspect", "Org/Name"}})
    expect_refusal(words, ExitCode::bad_input, {"hf download Org/Name", hub.folder()});
  EXPECT_FALSE(fs::exists(place.run()));
}

TEST(HubName, WithoutHomeTheCacheIsInTheHomeOfTheUser) {
  const passwd* user = ::getpwuid(::getuid());
  ASSERT_TRUE(user);
  const Outcome outcome =
      Process({"hash", "Org/Name"}, "", "unset HOME XDG_CACHE_HOME HF_HOME HF_HUB_CACHE; exec \"$0\" \"$@\"").wait();
  EXPECT_EQ(outcome.code, static_cast<int>(ExitCode::bad_input));
  EXPECT_NE(outcome.err.find(fmt::format("({}/.cache/huggingface/hub/models--Org--Name", user->pw_dir)),
            std::string::npos)
      << outcome.err;
}

}  // namespace megatrain::cli
