#include "replay.h"

#include <numeric>

#include "../errors.h"
#include "detailed.h"

namespace chakrascope::gpu {

Replay replay(const Machine& machine, const Program& program, const Settings& settings,
              const std::function<bool(std::int64_t, std::int32_t)>& progress) {
    const auto ranks = static_cast<std::int32_t>(program.ranks.size());
    Devices devices(machine, ranks, settings);
    std::vector<std::int32_t> members(program.ranks.size());
    std::iota(members.begin(), members.end(), 0);
    const auto run = std::make_shared<Run>(std::make_shared<const Program>(program), members);
    Replay result;
    result.rank_end.assign(program.ranks.size(), -1);
    for (std::int32_t rank = 0; rank < ranks; ++rank)
        devices.launch(run, rank, 0, static_cast<std::uint64_t>(rank));
    bool cancelled = false;
    std::int32_t ended = 0;
    const auto keep_going = [&](Fs now) {
        cancelled = progress && !progress(to_ns(now), ended);
        return !cancelled;
    };
    for (;;) {
        const auto& completions = devices.advance(-1, keep_going);
        if (cancelled) throw engine::Cancelled("The simulation was cancelled.");
        if (completions.empty()) break;
        for (const Completion& completion : completions) {
            result.rank_end[completion.id] = completion.time;
            ++ended;
        }
    }
    result.stamps = devices.stamps();
    result.links = devices.links();
    result.stuck = devices.stuck();
    result.counts = devices.counts();
    result.events = devices.events();
    if (const auto* detailed = dynamic_cast<const DetailedFabric*>(&devices.fabric())) {
        result.least_credit = detailed->on_chip().least_credit();
        result.most_credit = detailed->on_chip().most_credit();
    }
    return result;
}

}  // namespace chakrascope::gpu
