// Max-min fair rates of flows over directed links whose capacity answers in the other direction take a part
// of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "clusters.h"

namespace chakrascope::engine::flow {

// A direction of a link: bytes of full data packets per ps, and what one byte of data the other way costs it
// in answers.
struct Line {
    double capacity = 0;
    double answer_share = 0;
    bool leaves_host = false;
};

// Flows that take the same links there and back share one rate, and so one place in the equations.
class Sharing {
  public:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;

    explicit Sharing(const std::vector<Line>& lines);

    // Returns the number of the bundle. They count up from 0.
    std::uint32_t add(std::span<const std::uint32_t> forward, std::span<const std::uint32_t> back,
                      const Window& window);
    // What stands at links that limits who is answered by them. Flows of a bundle wait at one link, or at
    // their sender.
    Clusters& clusters() { return clusters_; }
    const Clusters& clusters() const { return clusters_; }
    void set_queue(std::uint32_t bundle, std::uint32_t link);
    void join(std::uint32_t bundle) { change(bundle, 1); }
    void leave(std::uint32_t bundle) { change(bundle, -1); }

    // Bring the rates up to date with who joined and left; returns the bundles whose rate changed.
    const std::vector<std::uint32_t>& solve();

    // Bundles with flows.
    std::size_t active() const { return active_; }
    std::size_t size() const { return bundles_.size(); }
    double rate(std::uint32_t bundle) const { return bundles_[bundle].rate; }
    std::int32_t flows(std::uint32_t bundle) const { return bundles_[bundle].flows; }
    // The link that limits the bundle; none if it is as fast as it can be.
    std::uint32_t binding(std::uint32_t bundle) const { return bundles_[bundle].binding; }
    std::span<const std::uint32_t> forward(std::uint32_t bundle) const {
        return {hops_.data() + bundles_[bundle].first, bundles_[bundle].forward};
    }
    std::span<const std::uint32_t> back(std::uint32_t bundle) const {
        return {hops_.data() + bundles_[bundle].first + bundles_[bundle].forward, bundles_[bundle].back};
    }
    const Line& line(std::uint32_t link) const { return links_[link].line; }
    // Bundles with flows on the link.
    const std::vector<std::uint32_t>& users(std::uint32_t link) const { return links_[link].users; }
    // Data and answers on the link, bytes per ps.
    double load(std::uint32_t link) const;

  private:
    struct Bundle {
        std::uint32_t first = 0;  // of its links in hops_: there, then back
        std::uint32_t forward = 0;
        std::uint32_t back = 0;
        std::int32_t flows = 0;
        double most = 0;  // of its slowest link and its window
        double rate = 0;
        double lag = 0;       // of answers behind data, as a share of the flow at rate 1
        double answered = 0;  // the rate of all its flows that the links back have counted
        std::uint32_t binding = kNone;
        std::uint32_t epoch = 0;  // gathered in this pass
        bool touched = false;
        bool settled = false;
        bool changed = false;
    };
    // What is seldom looked at.
    struct Limits {
        Window window;
        double line = 0;  // of its slowest link
        std::uint32_t queue = kNone;
        bool affected = false;
    };
    struct Link {
        Line line;
        std::vector<std::uint32_t> users;
        std::vector<std::uint32_t> answered;  // bundles with flows whose answers come by it
        double answers = 0;                   // load of the answers, bytes per ps
        double counted = 0;                   // what the last solution took it for
        double demand = 0;                    // of all flows if only their own limits counted
        std::int32_t answerers = 0;
        bool binds = false;
        bool dirty = false;
        std::uint32_t epoch = 0;
        double left = 0;  // while solving
        std::int32_t sharers = 0;
    };
    struct Level {
        double rate;
        std::uint32_t link;
        bool operator<(const Level& other) const {
            return rate != other.rate ? rate > other.rate : link > other.link;
        }
    };

    void change(std::uint32_t bundle, int by);
    void enter(std::uint32_t bundle);
    void exit(std::uint32_t bundle);
    bool slack(const Link& link) const {
        return link.demand <= (link.line.capacity - link.answers) * (1 + 1e-9);
    }
    void mark(std::uint32_t link);
    void gather();
    void gather_link(std::uint32_t link);
    void gather_bundle(std::uint32_t bundle);
    bool reaches(const Link& link) const { return link.epoch != epoch_ && (link.binds || !slack(link)); }
    void note_queues();
    void affect(std::uint32_t bundle);
    void touch(std::uint32_t bundle);
    std::vector<std::uint32_t>& list(std::uint32_t hop, const Bundle& bundle);
    void limit(std::uint32_t bundle);
    static double level_of(const Link& link);
    void prepare();
    void fill();
    bool lowest(Level& level);
    void freeze(std::uint32_t bundle, double rate, std::uint32_t binding);
    void publish();

    std::vector<Link> links_;
    std::vector<Bundle> bundles_;
    std::vector<Limits> limits_;  // of each
    std::vector<std::uint32_t> hops_;
    std::vector<std::uint32_t> slots_;  // where users of the link has the bundle, as hops_
    std::vector<std::uint32_t> touched_;
    std::vector<std::uint32_t> affected_;  // by queues that changed
    std::vector<std::uint32_t> dirty_;
    std::uint32_t epoch_ = 0;
    std::size_t active_ = 0;
    Clusters clusters_;
    std::vector<std::uint32_t> part_bundles_;
    std::vector<std::uint32_t> part_links_;
    std::vector<Level> levels_;
    std::vector<std::pair<double, std::uint32_t>> caps_;
    std::vector<std::pair<std::uint32_t, double>> old_rates_;
    std::vector<std::uint32_t> changed_;
};

}  // namespace chakrascope::engine::flow
