// The queues that form at links if flows send whole windows, and the waiting times of acknowledgements in
// these queues.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace chakrascope::engine::flow {

// The window of a flow, which limits its rate: bytes of full packets in flight, and the round-trip time (ps)
// without queues.
struct Window {
    double bytes = 0;
    double rtt = 0;
    double count = 0;  // number of windows in the flow; the first window is sent immediately

    // Return the rate that the flow reaches on a link of rate `line` if acknowledgements wait for `wait` ps.
    double rate(double line, double wait) const {
        const double turns = std::ceil(count) - 1;
        const double turn = (rtt + wait) / bytes;
        return turns > 0 && turn * line > 1 ? count / (turns * turn + (count - turns) / line) : line;
    }
    // Return the lag of acknowledgements behind data; acknowledgements begin half a round trip after the
    // data. When all data has left, the fraction of acknowledgements that have not arrived is the lag
    // multiplied by the rate.
    double lag() const { return rtt / 2 / (count * bytes); }
};

// The contribution of a flow to the queue of the link where it waits.
struct Stake {
    double bytes = 0;
    double rtt = 0;
    double joined = 0;  // ps
    double burst = 0;   // arrival rate over the link's rate
};

class Clusters {
  public:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;

    // Create the clusters of links with the given capacities, in bytes per ps.
    explicit Clusters(std::vector<double> capacities);

    void set_capacity(std::uint32_t link, double capacity) { capacities_[link] = capacity; }

    void add(std::uint32_t link, const Stake& stake) { change(link, stake, 1); }
    void remove(std::uint32_t link, const Stake& stake) { change(link, stake, -1); }
    // Return the links whose queues have changed since the last call, without repetitions.
    const std::vector<std::uint32_t>& take_changed();
    bool any() const { return any_; }
    // Return the total size of the windows of the flows at a link, in bytes.
    double bytes(std::uint32_t link) const { return clusters_[link].bytes; }
    std::int32_t flows(std::uint32_t link) const { return clusters_[link].flows; }
    // Return whether windows travelled in clusters because data queued in both directions of a path.
    bool two_way() const { return two_way_; }

    // Return the waiting time of a flow's acknowledgements on the return links `back`, if the data of the
    // flow waits at the link `queue` (kNone: at the sender).
    double wait(const Window& window, std::uint32_t queue, std::span<const std::uint32_t> back);

  private:
    struct Cluster {
        double bytes = 0;
        double rtt = 0;      // sums over flows, weighted by their bytes
        double joined = 0;   // sum of join times since `base`
        double squares = 0;  // sum of the squares of `joined`
        double burst = 0;
        double base = 0;
        std::int32_t flows = 0;
        bool changed = false;
    };

    double queue_time(std::uint32_t link) const;
    void change(std::uint32_t link, const Stake& stake, int sign);
    double together(const Cluster& one, const Cluster& other, double rtt) const;

    std::vector<double> capacities_;
    std::vector<Cluster> clusters_;
    std::vector<std::uint32_t> changed_;
    std::vector<std::uint32_t> taken_;
    bool any_ = false;
    bool two_way_ = false;
};

}  // namespace chakrascope::engine::flow
