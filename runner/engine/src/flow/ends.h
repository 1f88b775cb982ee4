// Finds the bundle whose flow ends first, with a tournament tree in which the end time of each bundle can
// change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace chakrascope::engine::flow {

class Ends {
  public:
    static constexpr double kNever = std::numeric_limits<double>::infinity();

    double time(std::uint32_t player) const { return times_[player]; }
    // Return the bundle with the earliest end time; on a tie, the bundle with the lowest number. `first_time`
    // is kNever if no bundle has an end time.
    std::uint32_t first() const { return size_ > 0 ? winners_[1] : 0; }
    double first_time() const { return size_ > 0 ? times_[winners_[1]] : kNever; }

    void set(std::uint32_t player, double time) {
        put(player, time);
        for (std::size_t match = (leaves_ + player) / 2; match > 0; match /= 2) play(match);
    }

    // Set a bundle's time without updating the tree: call `put` for many bundles, then `replay` once.
    void put(std::uint32_t player, double time) {
        if (player >= leaves_) grow(player + 1);
        if (player >= size_) size_ = player + 1;
        times_[player] = time;
    }
    void replay() {
        for (std::size_t match = leaves_; match-- > 1;) play(match);
    }
    std::size_t size() const { return size_; }

  private:
    std::uint32_t winner(std::size_t place) const {
        return place >= leaves_ ? static_cast<std::uint32_t>(place - leaves_) : winners_[place];
    }
    void play(std::size_t match) {
        const std::uint32_t left = winner(2 * match);
        const std::uint32_t right = winner(2 * match + 1);
        winners_[match] = times_[right] < times_[left] ? right : left;
    }
    void grow(std::size_t needed) {
        leaves_ = leaves_ > 0 ? leaves_ : 2;
        while (leaves_ < needed) leaves_ *= 2;
        times_.resize(leaves_, kNever);
        winners_.resize(leaves_);
        replay();
    }

    std::size_t size_ = 0;
    std::size_t leaves_ = 0;
    std::vector<double> times_;
    std::vector<std::uint32_t> winners_;
};

}  // namespace chakrascope::engine::flow
