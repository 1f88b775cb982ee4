// The GPUs of a simulation. Collectives and computation run on compute units, and proxies carry
// messages.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "../config.h"
#include "../event_queue.h"
#include "../gpu/devices.h"
#include "../network/network.h"
#include "../workload/program.h"

namespace chakrascope::engine {

class Gpus {
  public:
    // With `fold`, one of the ranks that do the same at the same times is simulated.
    Gpus(const GpuConfig& config, std::int32_t ranks, bool fold, EventQueue& events);

    // Run a rank's part of a collective. The k-th collectives of the same kind, group and size on all
    // ranks belong together. Returns false if the collective needs no work. Raises ConfigError if there
    // is no program.
    bool collective(const Node& node, std::int32_t rank, Callback done);
    // Run a computation that takes `duration` if it runs alone on the GPU. `bytes` is the memory traffic
    // of the computation, or 0 if the traffic is unknown.
    void compute(std::int32_t rank, Time duration, std::uint64_t bytes, Callback done);
    void transfer(std::int32_t from, std::int32_t to, std::uint64_t bytes, Callback done);

    std::vector<gpu::LinkReport> links() const { return devices_.links(); }
    // Return the time of each rank's computations: the simulated time, and the time alone on the GPU.
    const std::vector<GpuUse>& use() const { return use_; }
    std::uint64_t events() const { return devices_.events(); }
    // Whether ranks turned out not to be in step, so that the fold is not exact.
    bool out_of_step() const { return out_of_step_; }

  private:
    using Key = std::tuple<int, std::int64_t, std::uint64_t>;  // collective kind, group, bytes
    struct Meeting {                                           // state of the ranks of one collective
        std::shared_ptr<gpu::Run> run;
        std::size_t missing = 0;
        Origin last;  // of the lowest of the ranks that arrive last
        Time arrived = 0;
        std::int32_t rank = -1;
    };
    struct Pending {
        Callback done;
        Origin origin;
        std::shared_ptr<Meeting> meeting;
        std::int32_t rank = -1;  // rank of a computation
        Time started = 0, alone = 0;
    };

    // An operation that ranks in step start together: what it is, its number, and how many have started it.
    using What = std::tuple<int, std::int64_t, std::uint64_t, Time>;
    struct Joint {
        What what;
        std::uint64_t id = 0;
        std::int32_t ranks = 0;
    };

    static std::int32_t copies(const GpuConfig& config, std::int32_t ranks);
    // Return the number of an operation that a rank starts, if the rank is the first in its step to do so.
    std::optional<std::uint64_t> begin(std::int32_t rank, const What& what, Pending pending);
    void lose_step();
    bool advance(std::int64_t limit);
    void end(std::uint64_t id, gpu::Fs time);
    [[noreturn]] void refuse_deadlock(const gpu::Stuck& stuck) const;
    gpu::Fs now() const;

    const GpuConfig& config_;
    EventQueue& events_;
    const std::int32_t copies_;  // ranks in step with each simulated rank, including itself
    const std::int32_t period_;  // number of simulated ranks; ranks in step are this far apart
    gpu::Devices devices_;
    std::map<Key, const GpuCollective*> collectives_;
    std::map<std::pair<Key, std::uint64_t>, std::shared_ptr<Meeting>> meetings_;
    std::map<std::pair<Key, std::int32_t>, std::uint64_t> turns_;
    std::unordered_map<std::uint64_t, std::vector<Pending>> pending_;
    std::vector<std::uint64_t> begun_;  // number of operations that each rank has started
    std::map<std::pair<std::int32_t, std::uint64_t>, Joint> joints_;  // by simulated rank and operation
    bool out_of_step_ = false;
    std::vector<GpuUse> use_;
    std::uint64_t ids_ = 0;
};

}  // namespace chakrascope::engine
