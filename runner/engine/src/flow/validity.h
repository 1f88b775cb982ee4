// Detects where the fluid model is known to differ from packet-level simulation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "../fabric/routes.h"
#include "../packet/settings.h"
#include "clusters.h"
#include "sharing.h"

namespace chakrascope::engine::flow {

// The properties of a flow that the checks use.
struct Checked {
    std::span<const std::uint32_t> path;
    std::size_t hop = 0;  // position of the link where the flow waits
    Stake stake;
    double amount = 0;
    double windows = 0;        // number of windows in the flow
    std::int32_t crowded = 0;  // number of later links that are about as contended as the most contended link
};

class Validity {
  public:
    Validity(const Routes& routes, const packet::Settings& settings);

    void joined(const Checked& flow, const Clusters& clusters);
    void left(const Checked& flow);
    // Return the names of detected effects: marks, control, pauses, bursts, two-way, loss. `lost` means that
    // data was lost when links went down.
    std::vector<std::string> flags(const Clusters& clusters, bool lost) const;

  private:
    struct Node {
        double pool = 0;  // size of the buffer that a switch's ports share
        double held = 0;
    };

    void check_marks(std::uint32_t link, const Clusters& clusters);
    void check_pauses(const Checked& flow);

    const packet::Settings& settings_;
    std::vector<double> mark_low_;       // queue (bytes) from which packets are marked, by link
    std::vector<std::int32_t> node_of_;  // the source node of each link
    std::vector<Node> nodes_;
    std::vector<double> came_in_;  // bytes in the buffer of the receiving node, by incoming link
    double carried_ = 0;
    double bursts_ = 0;
    double controlled_ = 0;
    bool marks_ = false;
    bool pauses_ = false;
    bool loses_ = false;
};

}  // namespace chakrascope::engine::flow
