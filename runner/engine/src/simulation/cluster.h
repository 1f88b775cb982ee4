// Everything the ranks of one simulation share.
#pragma once

#include <deque>

#include "../collective/custom.h"
#include "../collective/implementation.h"
#include "../config.h"
#include "../event_queue.h"
#include "../network/network.h"
#include "../system/remote_memory.h"
#include "../workload/groups.h"

namespace chakrascope {

struct Cluster {
    explicit Cluster(const Config& settings)
        : config(settings),
          events(static_cast<std::size_t>(settings.num_ranks())),
          implementations(settings),
          groups(settings),
          mailbox(settings, events),
          memory(settings, events),
          customs(settings.custom_base) {}

    const Config& config;
    EventQueue events;
    Implementations implementations;
    Groups groups;
    Mailbox mailbox;
    RemoteMemory memory;
    CustomAlgorithms customs;
    std::int32_t ranks_finished = 0;
    std::vector<std::int32_t> finish_order;
};

}  // namespace chakrascope
